update shop.refunds set amount = '12.50', gateway_down_until = '-infinity' where id = $1
