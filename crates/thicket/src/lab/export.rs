//! Commands for a cluster elsewhere: export, collect.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use thicket_lab::kubernetes::{collect::collect as bring, export as manifests};
use thicket_lab::report;

use super::{load, show};
use crate::files;

/// Arguments of `thicket lab export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Scenario
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder for the manifests; it must be new or empty
    #[arg(long, value_name = "DIR")]
    kubernetes: PathBuf,
    /// Image of the brokers of a driver; the one of `thicket` is needed for the load too
    #[arg(long, value_name = "DRIVER=IMAGE")]
    image: Vec<String>,
}

/// Writes manifests.
pub fn export(arguments: &Export) -> anyhow::Result<()> {
    let (text, scenario, cells) = load(&arguments.file)?;
    let images = arguments
        .image
        .iter()
        .map(|words| {
            let (driver, image) = words
                .split_once('=')
                .with_context(|| format!("--image {words}: expected DRIVER=IMAGE"))?;
            Ok((driver.to_owned(), image.to_owned()))
        })
        .collect::<anyhow::Result<_>>()?;
    let folder = &arguments.kubernetes;
    files::make_empty_folder(folder)?;
    let index = manifests(&text, &scenario, &cells, &images, folder)?;
    show(
        "The cluster needs Chaos Mesh. One after the other, so that they do not disturb each other:\n",
    )?;
    for part in &index.parts {
        let (name, path) = (&part.name, folder.join(&part.name));
        let path = path.display();
        show(&format!("kubectl apply -f {path}/0-brokers.json\n"))?;
        show(&format!(
            "kubectl -n {name} wait --for=condition=Ready pod -l app=broker --timeout=300s\n"
        ))?;
        show(&format!("kubectl apply -f {path}/1-links.json\n"))?;
        show(&format!(
            "kubectl -n {name} wait --for=condition=AllInjected networkchaos --all --timeout=60s\n"
        ))?;
        show(&format!("kubectl apply -f {path}/2-load.json\n"))?;
        if folder.join(name).join("3-faults.json").exists() {
            show(&format!(
                "kubectl apply -f {path}/3-faults.json   # when the first message is sent: its clock begins here\n"
            ))?;
        }
    }
    show(&format!(
        "thicket lab collect {} --out RESULTS\n",
        folder.display()
    ))?;
    Ok(())
}

/// Arguments of `thicket lab collect`.
#[derive(Debug, Args)]
pub struct Collect {
    /// Folder written by `lab export`
    #[arg(value_name = "DIR")]
    exported: PathBuf,
    /// Folder for the results; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Brings results into one folder.
pub fn collect(arguments: &Collect) -> anyhow::Result<()> {
    files::make_empty_folder(&arguments.out)?;
    let results = bring(&arguments.exported, &arguments.out, &|line| {
        eprintln!("{line}")
    })?;
    report::write(&results, &arguments.out, None)?;
    show(&format!(
        "results: {0}/results.json, {0}/report.html\n",
        arguments.out.display()
    ))?;
    Ok(())
}
