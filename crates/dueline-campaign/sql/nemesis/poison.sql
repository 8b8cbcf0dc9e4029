with parcel as (
    insert into shop.parcels (id) values ($1) returning id
)
select s.receipt, (extract(epoch from s.due_at) * 1000000)::bigint
  from parcel, dueline.schedule('ship', parcel.id::text, delay => '0', payload => $2::text::jsonb) as s
