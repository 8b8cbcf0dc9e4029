select kind, key, (extract(epoch from at) * 1000000)::bigint as at from shop.effect order by effect
