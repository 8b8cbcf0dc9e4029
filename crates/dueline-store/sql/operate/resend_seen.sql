-- Whether this letter's message was sent again already. There is no task to hang the event on: it stands under id 0.
select exists (
    select from dueline.task_event
    where task_id = 0 and step = 'resend' and detail @> $1::text::jsonb
)
