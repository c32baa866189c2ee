//! Generates the bindings: picks the layout by the release of libibverbs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::exit;

include!("layouts.rs");
include!("installation.rs");

/// Root of an unpacked distribution to build for, instead of this machine's.
const ROOT_VARIABLE: &str = "IRDMA_RDMA_CORE_ROOT";

/// The libibverbs to build against.
struct Target {
    /// `Version:` of its pkg-config file, such as 1.14.44.0.
    version: String,
    /// Directories with its headers, before the compiler's own.
    include: Vec<PathBuf>,
}

fn main() {
    println!("cargo::rerun-if-env-changed={ROOT_VARIABLE}");
    for file in ["build.rs", "layouts.rs", "installation.rs", "include/provider.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let root = env::var_os(ROOT_VARIABLE).filter(|root| !root.is_empty());
    let target = match root {
        Some(root) => unpacked(Path::new(&root)),
        None => installed(),
    };
    let target = target.unwrap_or_else(|reason| fail(&reason));
    let layout = layout_of_version(&target.version).unwrap_or_else(|reason| fail(&reason));
    announce(layout);
    generate(&target, layout);
}

/// Ends the build with a line for the person in front of it.
fn fail(reason: &str) -> ! {
    println!("cargo::error={reason}");
    exit(1)
}

/// The libibverbs of this machine, linked to as pkg-config says.
fn installed() -> Result<Target, String> {
    let library = pkg_config::Config::new().probe("libibverbs").map_err(|error| {
        format!("libibverbs not found (Debian: libibverbs-dev, Fedora: rdma-core-devel): {error}")
    })?;
    Ok(Target { version: library.version, include: library.include_paths })
}

/// The libibverbs of a distribution unpacked at `root`.
fn unpacked(root: &Path) -> Result<Target, String> {
    let triplet = triplet();
    let found = Installation::below(root, &triplet).map_err(|reason| format!("{ROOT_VARIABLE}: {reason}"))?;
    println!("cargo::rerun-if-changed={}", found.description.display());
    println!("cargo::rustc-link-search=native={}", found.libraries.display());
    println!("cargo::rustc-link-lib=dylib=ibverbs");
    Ok(Target { version: found.version, include: vec![found.headers.join(triplet), found.headers] })
}

/// Debian's name for the target's architecture in paths.
fn triplet() -> String {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    format!("{architecture}-linux-gnu")
}

/// Tells the library and dependent crates which layout it is.
fn announce(layout: &Layout) {
    let changes = || LAYOUTS.iter().skip(1).map(|layout| layout.number);
    let values: Vec<_> = changes().map(|change| format!("\"{change}\"")).collect();
    println!("cargo::rustc-check-cfg=cfg(layout_since, values({}))", values.join(","));
    for change in changes().filter(|&change| change <= layout.number) {
        println!("cargo::rustc-cfg=layout_since=\"{change}\"");
    }
    println!("cargo::rustc-env=IRDMA_LAYOUT={}", layout.number);
    // For whoever depends on this crate with a build script: DEP_IBVERBS_LAYOUT.
    println!("cargo::metadata=layout={}", layout.number);
}

/// Writes the bindings to the build directory.
fn generate(target: &Target, layout: &Layout) {
    let pabi = layout.pabi;
    let includes = target
        .include
        .iter()
        .filter(|directory| directory.is_dir())
        .map(|directory| format!("-I{}", directory.display()));
    let bindings = bindgen::Builder::default()
        .header("include/provider.h")
        .clang_args(includes)
        .clang_arg(format!("-DIRDMA_LAYOUT={}", layout.number))
        .clang_arg(format!("-DIRDMA_PABI={pabi}"))
        .allowlist_item("_?_?ibv_.*|_?_?verbs_.*|IBV_.*|VERBS_.*")
        .allowlist_item("ib_uverbs_.*|IB_UVERBS_.*|ex_hdr")
        .raw_line(format!("pub use self::verbs_register_driver_{pabi} as verbs_register_driver;"))
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .derive_default(true)
        .use_core()
        // Built again when one of the headers changes.
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .generate()
        .unwrap_or_else(|error| fail(&format!("bindgen: {error}")));
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("bindings.rs");
    bindings.write_to_file(&output).unwrap_or_else(|error| fail(&format!("{}: {error}", output.display())));
}
