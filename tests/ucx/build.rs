//! Generates the bindings of UCX's protocol layer.

use std::env;
use std::path::PathBuf;

fn main() {
    let library = match pkg_config::Config::new().probe("ucx") {
        Ok(library) => library,
        Err(error) => {
            println!("cargo::error=UCX not found (Debian: libucx-dev): {error}");
            return;
        }
    };
    let bindings = bindgen::Builder::default()
        .header_contents("ucx.h", "#include <ucp/api/ucp.h>")
        .clang_args(library.include_paths.iter().map(|directory| format!("-I{}", directory.display())))
        .allowlist_function("ucp_.*|ucs_status_string")
        .allowlist_type("ucp_.*|ucs_.*")
        .allowlist_var("UCP_.*|UCS_.*")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .derive_default(true)
        .use_core()
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .generate();
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("bindings.rs");
    match bindings.map(|bindings| bindings.write_to_file(&output)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => println!("cargo::error={}: {error}", output.display()),
        Err(error) => println!("cargo::error=bindgen: {error}"),
    }
}
