//! H28: who may do what; H25: what a value may not do.

use std::str::FromStr as _;

use anyhow::Result;
use dueline_store::StoreError;
use dueline_store::client::{self, Deadline, ReceiptKind, ScheduleRequest};
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};

use super::stage::{HALF_HOUR, HERE, Phase, Stage, refusal};

/// A login with some roles, dropped by [`Login::drop_role`].
struct Login {
    name: String,
}

impl Login {
    async fn new(stage: &Stage, what: &str) -> Result<Self> {
        let name = format!("login_{}", uuid::Uuid::new_v4().simple());
        let statement = format!("create role {name} login {what}");
        sqlx::query(AssertSqlSafe(statement)).execute(&stage.pool).await?;
        Ok(Self { name })
    }

    async fn connect(&self, url: &str) -> Result<PgConnection> {
        Ok(PgConnectOptions::from_str(url)?.username(&self.name).connect().await?)
    }

    async fn drop_role(self, stage: &Stage) -> Result<()> {
        let name = self.name;
        let statement = format!("drop owned by {name}; drop role {name}");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&stage.pool).await?;
        Ok(())
    }
}

async fn state_of(connection: &mut PgConnection, statement: &'static str) -> String {
    match sqlx::query(statement).execute(connection).await {
        Ok(_) => "00000".to_owned(),
        Err(error) => StoreError::from(error).sqlstate().unwrap_or_default(),
    }
}

const CLIENT: [&str; 7] = [
    "select dueline.schedule('close_order', 'k', delay => '1 s')",
    "select dueline.schedule_many('close_order', array['l'], delays => array[interval '1 s'])",
    "select dueline.reschedule('close_order', 'k', delay => '1 min')",
    "select dueline.get('close_order', 'k')",
    "select dueline.cancel_many('close_order', array['l'])",
    "select dueline.cancel_or_raise('close_order', 'k')",
    "select dueline.cancel('close_order', 'k')",
];

const VERDICTS: [&str; 4] = [
    "select dueline.replay(1, 0, gen_random_uuid(), 'me')",
    "select dueline.resolve(1, 0, 'me', 'why')",
    "select dueline.discard(1, 0, 'me', 'why')",
    "select dueline.current_timeline()",
];

const TABLES: [&str; 6] = [
    "select count(*) from dueline.task",
    "update dueline.due set next_at = now()",
    "delete from dueline.dedupe",
    "insert into dueline.task_event (task_id, step, generation, attempt) values (1, 'x', 0, 0)",
    "select count(*) from dueline.stranded",
    "insert into dueline.queue values ('own', 1, 'g')",
];

const INTERNAL: [&str; 3] = [
    "select dueline.make_live(null, 'x', now(), '1h', 1, null, null, '{}')",
    "select dueline.make_cancelled(null, 'x', '{}')",
    "select dueline.note(null, 'x', 'live', 0, 0, '{}')",
];

#[tokio::test]
async fn h28_each_role_may_do_its_part_and_no_more() -> Result<()> {
    const DENIED: &str = "42501";
    let stage = Stage::new().await?;
    let roles = [
        ("", false, false),
        ("in role dueline_handler", false, false),
        ("in role dueline_schedule", true, false),
        ("in role dueline_operate", true, true),
    ];
    for (role, may_call, may_operate) in roles {
        let login = Login::new(&stage, role).await?;
        let mut connection = login.connect(&stage.url()).await?;
        for (statements, allowed) in
            [(&CLIENT[..], may_call), (&VERDICTS[..], may_operate), (&TABLES[..], may_operate)]
        {
            for statement in statements {
                let state = state_of(&mut connection, statement).await;
                let expected = if allowed { "00000" } else { DENIED };
                assert_eq!(state, expected, "{role}: {statement}");
            }
        }
        if !may_operate {
            for statement in INTERNAL {
                assert_eq!(
                    state_of(&mut connection, statement).await,
                    DENIED,
                    "{role}: {statement}"
                );
            }
        }
        for statement in
            ["drop table dueline.task", "truncate dueline.due", "create table dueline.x ()"]
        {
            assert_eq!(state_of(&mut connection, statement).await, DENIED, "{role}: {statement}");
        }
        drop(connection);
        login.drop_role(&stage).await?;
    }
    Ok(())
}

#[tokio::test]
async fn c04_the_audit_names_the_login_not_the_functions_owner() -> Result<()> {
    let stage = Stage::new().await?;
    let login = Login::new(&stage, "in role dueline_schedule").await?;
    let mut connection = login.connect(&stage.url()).await?;
    sqlx::query("set application_name = 'shop'").execute(&mut connection).await?;
    client::schedule(&mut connection, &ScheduleRequest::new(HERE, "1", Deadline::after(HALF_HOUR)))
        .await?;
    client::cancel(&mut connection, HERE, "1", Some("paid")).await?;
    let (actor, detail): (String, serde_json::Value) =
        sqlx::query_as("select actor, detail from dueline.task_event")
            .fetch_one(&stage.pool)
            .await?;
    assert_eq!(actor, login.name);
    assert_eq!(detail["application"], "shop");
    assert_eq!(detail["reason"], "paid");
    drop(connection);
    login.drop_role(&stage).await
}

#[tokio::test]
async fn h28_every_object_is_the_owners_and_every_function_is_closed() -> Result<()> {
    let stage = Stage::new().await?;
    let strangers: Vec<String> = sqlx::query_scalar(
        "select c.oid::regclass::text from pg_class c
         where c.relnamespace = 'dueline'::regnamespace and c.relowner <> 'dueline_owner'::regrole
         union all
         select p.oid::regprocedure::text from pg_proc p
         where p.pronamespace = 'dueline'::regnamespace and p.proowner <> 'dueline_owner'::regrole",
    )
    .fetch_all(&stage.pool)
    .await?;
    assert_eq!(strangers, Vec::<String>::new(), "owned by somebody else");
    // A bare expression was bound when it was created; everything else fixes its search_path, pg_temp last.
    // But for those that run with every batch, of whoever is trusted with the tables anyway.
    let open: Vec<String> = sqlx::query_scalar(
        "select p.oid::regprocedure::text from pg_proc p
         where p.pronamespace = 'dueline'::regnamespace
           and (p.proname not in ('effect', 'admit', 'handle', 'settle') or p.prosecdef)
           and not case when p.prosqlbody is not null then not p.prosecdef and p.proconfig is null
                   else p.prosecdef
                        and 'search_path=pg_catalog, dueline, pg_temp' = any (p.proconfig) end",
    )
    .fetch_all(&stage.pool)
    .await?;
    assert_eq!(open, Vec::<String>::new(), "without a fixed search_path");
    let public: Vec<String> = sqlx::query_scalar(
        "select p.oid::regprocedure::text
         from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
         where p.pronamespace = 'dueline'::regnamespace and a.grantee = 0
         union all
         select c.oid::regclass::text from pg_class c, aclexplode(c.relacl) a
         where c.relnamespace = 'dueline'::regnamespace and a.grantee = 0",
    )
    .fetch_all(&stage.pool)
    .await?;
    assert_eq!(public, Vec::<String>::new(), "open to everybody");
    let can_login: bool = stage
        .ask("select bool_or(rolcanlogin) from pg_roles where rolname like 'dueline\\_%'")
        .await?;
    assert!(!can_login);
    Ok(())
}

#[tokio::test]
async fn h28_the_migrating_user_need_not_be_a_superuser() -> Result<()> {
    let stage = Stage::new().await?;
    let login = Login::new(&stage, "createrole").await?;
    let database = format!("plain_{}", uuid::Uuid::new_v4().simple());
    // From 16 on, who creates roles may give away only what was given to him with this option.
    let admin: bool =
        stage.ask("select current_setting('server_version_num')::int >= 160000").await?;
    let mut statements = vec![format!("create database {database} owner {}", login.name)];
    if admin {
        statements.push(format!(
            "grant dueline_owner, dueline_schedule, dueline_operate, dueline_handler to {} \
             with admin option",
            login.name
        ));
    }
    for statement in statements {
        sqlx::query(AssertSqlSafe(statement)).execute(&stage.pool).await?;
    }
    let url = dueline_tests::testkit::database::url_of(&stage.url(), &database);
    let options = PgConnectOptions::from_str(&url)?.username(&login.name);
    let pool = dueline_store::Pool::connect_with(options).await?;
    dueline_store::migrate(&pool).await?;
    dueline_store::migrate(&pool).await?;
    let owner: String = sqlx::query_scalar(
        "select relowner::regrole::text from pg_class where oid = 'dueline.task'::regclass",
    )
    .fetch_one(&pool)
    .await?;
    assert_eq!(owner, "dueline_owner");
    pool.close().await;
    let statement = format!("drop database {database} with (force)");
    sqlx::query(AssertSqlSafe(statement)).execute(&stage.pool).await?;
    login.drop_role(&stage).await
}

#[tokio::test]
async fn h25_values_are_values_whatever_is_in_them() -> Result<()> {
    let stage = Stage::new().await?;
    let nasty = [
        "'; drop table dueline.task; --",
        "$$; select pg_sleep(10); $$",
        "x'::text || (select current_user) || '",
        "\\'; delete from dueline.due; --",
        "../../etc/passwd\r\nce_taskid: 1",
        "%s %n %I %L {0} ${env:HOME}",
        "\u{202e}\u{0}x".trim_matches('\u{0}'),
        "<script>alert(1)</script>",
    ];
    for value in nasty.map(|v| v.replace('\0', "")) {
        let request = ScheduleRequest::new(HERE, &value, Deadline::after(HALF_HOUR))
            .payload(json!({ "v": value }))
            .header("note", &value);
        let receipt = client::schedule(&stage.pool, &request).await?;
        assert_eq!(receipt.receipt, ReceiptKind::Scheduled, "{value}");
        client::cancel(&stage.pool, HERE, &value, Some(&value)).await?;
        let view = client::get(&stage.pool, HERE, &value).await?.expect("there");
        assert_eq!(
            (view.key.as_str(), &view.payload),
            (value.as_str(), &Some(json!({ "v": value })))
        );
        let reason: String = stage
            .ask("select detail ->> 'reason' from dueline.task_event order by event desc limit 1")
            .await?;
        assert_eq!(reason, value);
        let odd_kind = ScheduleRequest::new(&value, "k", Deadline::after(HALF_HOUR));
        assert_eq!(refusal(client::schedule(&stage.pool, &odd_kind).await).0, "22023");
        assert_eq!(refusal(client::cancel(&stage.pool, &value, "k", None).await).0, "22023");
    }
    assert_eq!(stage.count("cancelled").await?, i64::try_from(nasty.len())?);
    Ok(())
}

#[tokio::test]
async fn h25_a_header_cannot_pass_for_one_of_the_envelope() -> Result<()> {
    let stage = Stage::new().await?;
    for name in [
        "ce_taskid",
        "CE_generation",
        "content-type",
        "Content-Type",
        "dueline-letter-reason",
        "",
        "a b",
        "a\nb",
        "ü",
    ] {
        let request = ScheduleRequest::new(HERE, "k", Deadline::after(HALF_HOUR)).header(name, "1");
        let (state, text) = refusal(client::schedule(&stage.pool, &request).await);
        assert_eq!(state, "22023", "{name:?}");
        assert!(text.contains("header"), "{text}");
    }
    let long = ScheduleRequest::new(HERE, "k", Deadline::after(HALF_HOUR))
        .header("note", "x".repeat(4_097));
    assert_eq!(refusal(client::schedule(&stage.pool, &long).await).0, "22023");
    stage.task_in(HERE, "fine", Phase::Waiting).await?;
    Ok(())
}
