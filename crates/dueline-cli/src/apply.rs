//! `apply`: database and broker as the configuration says.

use dueline_store::operate::plan::{Action, Plan, PlanItem};
use dueline_store::operate::{apply as database, instance};
use serde_json::json;

use crate::args::{ApplyArgs, Half};
use crate::broker::{self, BrokerPlan};
use crate::context::Context;
use crate::exit;
use crate::output::{self, Reply};

/// `dueline apply [--plan]`.
pub async fn apply(context: &Context, args: &ApplyArgs) -> anyhow::Result<Reply> {
    let with = |half: Half| args.only.is_none_or(|only| only == half);
    let mut plan = Plan::default();
    let broker =
        if with(Half::Broker) { broker::plan(context).await? } else { BrokerPlan::default() };
    if with(Half::Database) {
        plan.items.extend(plan_database(context).await?);
    }
    plan.items.extend(broker.items.iter().cloned());
    if args.plan || plan.refusals().next().is_some() {
        return Ok(reply(&plan, false));
    }
    // Topics first: a kind that can be scheduled has somewhere to go.
    broker::carry_out(context, &broker).await?;
    if with(Half::Database) {
        let pool = context.pool()?;
        instance::create(&pool, &context.config.instance.name).await?;
        let done = database::apply(&pool, &context.config).await?;
        if done.refusals().next().is_some() {
            // Somebody scheduled between the plan and the act.
            return Ok(reply(&done, false));
        }
    }
    Ok(reply(&plan, true))
}

async fn plan_database(context: &Context) -> anyhow::Result<Vec<PlanItem>> {
    let pool = context.pool()?;
    let name = &context.config.instance.name;
    instance::check_primary(&pool).await?;
    let item = if instance::show(&pool).await?.is_some() {
        instance::check(&pool, name).await?;
        PlanItem::new("instance", name, Action::Keep, "")
    } else {
        PlanItem::new("instance", name, Action::Create, "")
    };
    let mut items = vec![item];
    items.extend(database::plan(&pool, &context.config).await?.items);
    Ok(items)
}

fn reply(plan: &Plan, applied: bool) -> Reply {
    let refused = plan.refusals().next().is_some();
    let (code, last) = match (refused, applied, plan.has_changes()) {
        (true, _, _) => (exit::REFUSED, "refused: nothing was done"),
        (false, true, true) => (exit::OK, "applied"),
        (false, _, false) => (exit::OK, "nothing to do"),
        (false, false, true) => (exit::PENDING, "planned; nothing was done"),
    };
    let document = json!({
        "items": plan.items, "changes": plan.has_changes(), "refused": refused, "applied": applied,
    });
    Reply::new(document, format!("{}{last}", lines(plan))).code(code)
}

/// What stays as it is goes without saying.
fn lines(plan: &Plan) -> String {
    let rows: Vec<Vec<String>> = plan
        .items
        .iter()
        .filter(|i| i.action != Action::Keep)
        .map(|i| {
            let action = i.action.as_str().to_owned();
            vec![action, i.what.to_owned(), i.name.clone(), i.detail.clone()]
        })
        .collect();
    let table = output::table(&["action", "what", "name", "detail"], rows);
    if table.is_empty() { table } else { format!("{table}\n\n") }
}
