//! `bench`: how fast it is here.

use anyhow::Context as _;
use dueline_bench::Options;

use crate::args::BenchArgs;
use crate::context::Context;
use crate::exit;
use crate::output::Reply;

/// `dueline bench`.
pub async fn bench(context: &Context, args: BenchArgs) -> anyhow::Result<Reply> {
    let options = Options {
        scenarios: args.scenario,
        quick: args.quick,
        repeats: args.repeats.map(usize::from),
        scale: args.scale,
    };
    let stop = dueline_service::shutdown::on_signal()?;
    let report = dueline_bench::run(&context.config, options, stop).await?;
    let document = report.document();
    if let Some(path) = args.json.filter(|path| path.as_os_str() != crate::args::STDOUT) {
        let text = format!("{document:#}\n");
        std::fs::write(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let code = if report.is_correct() { exit::OK } else { exit::FAILURE };
    Ok(Reply::new(document, dueline_bench::render(&report)).code(code))
}
