update shop.orders set status = 'paid', paid_at = clock_timestamp() where id = $1 and status = 'unpaid'
