select (select count(*) from (select from shop.orders where status = 'unpaid' order by id desc limit 60 for update) as o)
     + (select count(*) from (select from shop.refunds where times = 0 order by id desc limit 60 for update) as r)
