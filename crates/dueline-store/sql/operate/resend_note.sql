insert into dueline.task_event (task_id, step, generation, attempt, actor, detail)
values (0, 'resend', 0, 0, session_user, $1::text::jsonb || jsonb_build_object('who', $2::text))
