select (dueline.cancel($1, $2, reason => 'the customer asked for it')).receipt
