-- Whether the look for old relays is worth its walk over all alarms: some ended, and the last look was a while ago.
select exists (select from dueline.relay r where r.ended_at < statement_timestamp() - interval '1 hour')
       and not exists (select from dueline.patrol p
                        where p.table_name = 'relay' and p.at > statement_timestamp() - interval '10 minutes')
       as worth
