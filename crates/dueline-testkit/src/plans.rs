//! Reading plans: a statement is planned as production plans it, generically and without its parameters, and what
//! it scans is looked at (S7, H2).
//!
//! On a table of a few rows every planner scans the whole of it: fill it and `analyze` before.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};

/// One scan of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// `Seq Scan`, `Index Scan`, `Index Only Scan`, `Bitmap Heap Scan`, …
    pub node: String,
    /// The table.
    pub relation: Option<String>,
    /// The index.
    pub index: Option<String>,
    /// What the index is entered with; a condition that is missing here is a filter, and walks the index.
    pub condition: Option<String>,
}

/// A statement's generic plan.
#[derive(Clone, Debug)]
pub struct Plan {
    tree: Value,
}

/// Plans a statement with `$1…` parameters generically, without running it.
///
/// # Errors
/// When the database cannot prepare it.
pub async fn explain_generic(connection: &mut PgConnection, statement: &str) -> Result<Plan> {
    let prepare = format!("prepare dueline_plan as {statement}");
    connection.execute(AssertSqlSafe(prepare)).await.context("cannot be prepared")?;
    let plan = explain_prepared(connection).await;
    connection.execute("deallocate dueline_plan; reset plan_cache_mode").await?;
    plan
}

async fn explain_prepared(connection: &mut PgConnection) -> Result<Plan> {
    connection.execute("set plan_cache_mode = force_generic_plan").await?;
    let count = "select coalesce(cardinality(parameter_types), 0) as n
                 from pg_prepared_statements where name = 'dueline_plan'";
    let parameters: i32 = connection.fetch_one(count).await?.try_get("n")?;
    let nulls = vec!["null"; usize::try_from(parameters)?].join(", ");
    let arguments = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    let explain = format!("explain (format json) execute dueline_plan{arguments}");
    // `explain execute` cannot itself be prepared, so its answer comes as text.
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(explain))).await?;
    let tree: Value = row.try_get(0)?;
    ensure!(tree.is_array(), "no plan: {tree}");
    Ok(Plan { tree })
}

impl Plan {
    /// Every scan of a table or an index, in the order of the plan.
    #[must_use]
    pub fn scans(&self) -> Vec<Scan> {
        let mut scans = Vec::new();
        collect(&self.tree, &mut scans);
        scans
    }

    /// Fails when one of these tables is scanned as a whole.
    ///
    /// # Errors
    /// Naming the table, and showing the plan.
    pub fn ensure_no_seq_scan(&self, tables: &[&str]) -> Result<()> {
        for scan in self.scans() {
            let table = scan.relation.as_deref().unwrap_or_default();
            ensure!(
                scan.node != "Seq Scan" || !tables.contains(&table),
                "{table} is scanned as a whole:\n{:#}",
                self.tree
            );
        }
        Ok(())
    }

    /// Fails unless this index is entered with a condition that names all of `columns`.
    ///
    /// # Errors
    /// Naming the index, and showing the plan.
    pub fn ensure_index(&self, index: &str, columns: &[&str]) -> Result<()> {
        let entered = self.scans().into_iter().any(|scan| {
            let condition = scan.condition.unwrap_or_default();
            scan.index.as_deref() == Some(index) && columns.iter().all(|c| condition.contains(c))
        });
        ensure!(entered, "index {index} is not entered with {columns:?}:\n{:#}", self.tree);
        Ok(())
    }
}

fn collect(node: &Value, scans: &mut Vec<Scan>) {
    match node {
        Value::Array(items) => items.iter().for_each(|item| collect(item, scans)),
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
            if let Some(node) = text("Node Type").filter(|node| node.ends_with("Scan")) {
                scans.push(Scan {
                    node,
                    relation: text("Relation Name"),
                    index: text("Index Name"),
                    condition: text("Index Cond"),
                });
            }
            fields
                .values()
                .filter(|v| v.is_array() || v.is_object())
                .for_each(|v| collect(v, scans));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scans_are_found_at_every_depth() {
        let tree = json!([{"Plan": {"Node Type": "Nested Loop", "Plans": [
            {"Node Type": "Seq Scan", "Relation Name": "lane"},
            {"Node Type": "Index Scan", "Relation Name": "due", "Index Name": "due_scan",
             "Index Cond": "((lane = l.lane) AND (next_at <= now()))"}]}}]);
        let plan = Plan { tree };
        assert_eq!(plan.scans().len(), 2);
        assert!(plan.ensure_no_seq_scan(&["task", "due"]).is_ok());
        assert!(plan.ensure_no_seq_scan(&["lane"]).is_err());
        assert!(plan.ensure_index("due_scan", &["lane", "next_at"]).is_ok());
        assert!(plan.ensure_index("due_scan", &["id"]).is_err());
    }
}
