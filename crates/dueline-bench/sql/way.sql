-- Where the tasks of kind $1 go: the product's own table for that.
select queue, slots, tiers, lanes from dueline.route where kind = $1
