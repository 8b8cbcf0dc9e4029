//! The fault campaign, started by `./scripts/campaign`.

use anyhow::Result;
use dueline_campaign::{Stage, StageOptions};

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let began = std::time::Instant::now();
        let stage = Stage::start(StageOptions { disk_mib: 256, ..StageOptions::default() }).await?;
        eprintln!("ready after {:?}", began.elapsed());
        stage.stop_processes().await?;
        Ok(())
    })
}
