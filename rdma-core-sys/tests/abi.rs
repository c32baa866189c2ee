//! Compares include/provider.h with the private headers of rdma-core releases.
//!
//! For each release a C file is compiled that includes the real headers and then
//! our declarations under other names, with an assertion for every struct's size,
//! every field's offset, size and type, every constant and every function's type.
//! The sources are expected in `$IRDMA_RDMA_CORE_SOURCES/<suite>`; a suite that is
//! not there is skipped, which is said on standard error.

#[path = "abi/declarations.rs"]
mod declarations;
#[path = "abi/sources.rs"]
mod sources;

use std::fmt::Write as _;
use std::io::{self, Write as _};

use declarations::{Declaration, Field};
use rdma_core_sys::bindings::*;
use rdma_core_sys::queue_pair::QueuePairHead;
use sources::Release;

#[test]
fn bookworm() {
    compare_suite("bookworm", 44);
}

#[test]
fn trixie() {
    compare_suite("trixie", 56);
}

#[test]
fn forky() {
    compare_suite("forky", 65);
}

/// Whatever else is in the folder: releases that no suite of Debian has.
#[test]
fn others() {
    for release in Release::others(&["bookworm", "trixie", "forky"]) {
        compare(&release);
        // Not the macro, whose output a passing test does not show.
        let _ = writeln!(
            io::stderr(),
            "compared: rdma-core {}, layout {}",
            release.number,
            release.layout().number
        );
    }
}

/// A function with one argument more than releases before the given one.
const GREW: (&str, u32) = ("ibv_cmd_reg_dmabuf_mr", 54);

/// Compares one suite, which has that release, or says that it is skipped.
fn compare_suite(suite: &str, expected: u32) {
    match Release::find(suite) {
        Ok(release) => {
            assert_eq!(release.number, expected, "release of {suite}");
            compare(&release);
        }
        Err(reason) => {
            // As above.
            let _ = writeln!(
                io::stderr(),
                "skipped: {suite}: comparison with rdma-core's private headers: {reason}"
            );
        }
    }
}

/// Compares with the headers of one release.
fn compare(release: &Release) {
    let layout = release.layout();
    assert_eq!(layout.pabi, release.pabi, "IBVERBS_PABI_VERSION of rdma-core {}", release.number);
    let ours = declarations::of_layout(layout);
    let declared = |kind: fn(&Declaration) -> bool| ours.iter().filter(|it| kind(it)).count();
    // That nothing was lost on the way.
    assert!(declared(|it| matches!(it, Declaration::Struct { .. })) >= 27);
    assert!(declared(|it| matches!(it, Declaration::Function { .. })) >= 35);
    assert!(declared(|it| matches!(it, Declaration::Enum { .. })) >= 4);
    let mut text = assertions(&ours, release.number);
    same(&mut text, &layout.operations.to_string(), "sizeof(struct verbs_context_ops)");
    same(&mut text, &layout.context.to_string(), "offsetof(struct verbs_context, context)");
    for (name, is_there) in [(Some(layout.has), true), (layout.lacks, false)] {
        let Some(name) = name else { continue };
        assert_eq!(
            release.exports(name.to_str().unwrap()),
            is_there,
            "{name:?} in rdma-core {}",
            release.number
        );
    }
    release.compile(&text);
}

/// The C file: our declarations, and that they are the real ones.
fn assertions(ours: &[Declaration], release: u32) -> String {
    let mut text = String::from("typedef void (*unfilled_op)(void);\n");
    for declaration in ours {
        match declaration {
            Declaration::Struct { name, body, fields } => {
                writeln!(text, "struct ours_{name} {body};").unwrap();
                same(&mut text, &format!("sizeof(struct ours_{name})"), &format!("sizeof(struct {name})"));
                fields.iter().for_each(|field| same_field(&mut text, name, field));
            }
            Declaration::Enum { constants } => {
                let prefixed: Vec<_> = constants.iter().map(|(_, text)| format!("ours_{text}")).collect();
                writeln!(text, "enum {{ {} }};", prefixed.join(", ")).unwrap();
                constants.iter().for_each(|(name, _)| same(&mut text, &format!("ours_{name}"), name));
            }
            Declaration::Function { name, result, arguments } => {
                let shorter = *name == GREW.0 && release < GREW.1;
                let arguments = if shorter { &arguments[..arguments.rfind(',').unwrap()] } else { arguments };
                writeln!(text, "{result} ours_{name}({arguments});").unwrap();
                same_type(&mut text, name, &format!("ours_{name}"), name);
            }
        }
    }
    sizes_of_this_build(&mut text);
    text
}

/// Asserts that two constants are equal.
fn same(text: &mut String, ours: &str, theirs: &str) {
    writeln!(text, "_Static_assert({ours} == {theirs}, \"{theirs}\");").unwrap();
}

/// Asserts that two expressions have the same type.
fn same_type(text: &mut String, what: &str, ours: &str, theirs: &str) {
    let types = format!("__typeof__({ours}), __typeof__({theirs})");
    writeln!(text, "_Static_assert(__builtin_types_compatible_p({types}), \"type of {what}\");").unwrap();
}

/// Asserts that a field is where it is, as large as it is, and an operation that is filled of its type.
fn same_field(text: &mut String, parent: &str, field: &Field) {
    let name = &field.name;
    let [ours, theirs] = [format!("struct ours_{parent}"), format!("struct {parent}")];
    same(text, &format!("offsetof({ours}, {name})"), &format!("offsetof({theirs}, {name})"));
    let [ours, theirs] = [ours, theirs].map(|parent| format!("(({parent} *)0)->{name}"));
    same(text, &format!("sizeof({ours})"), &format!("sizeof({theirs})"));
    if field.is_function {
        same_type(text, &format!("{parent}.{name}"), &ours, &theirs);
    }
}

/// Asserts what the bindings of this build say about structs that are the same in all layouts.
fn sizes_of_this_build(text: &mut String) {
    macro_rules! sizes {
        ($($name:ident)*) => {
            $(writeln!(text, "_Static_assert(sizeof(struct {0}) == {1}, \"{0} of this build\");",
                stringify!($name), size_of::<$name>()).unwrap();)*
        };
    }
    sizes! {
        ibv_get_context ib_uverbs_get_context_resp ibv_alloc_pd ib_uverbs_alloc_pd_resp
        ibv_reg_mr ib_uverbs_reg_mr_resp ibv_rereg_mr ib_uverbs_rereg_mr_resp
        ibv_alloc_mw ib_uverbs_alloc_mw_resp ibv_create_cq ib_uverbs_create_cq_resp
        ibv_create_cq_ex ib_uverbs_ex_create_cq_resp ibv_resize_cq ib_uverbs_resize_cq_resp
        ibv_create_qp ib_uverbs_create_qp_resp ibv_create_qp_ex ib_uverbs_ex_create_qp_resp
        ibv_modify_qp ibv_modify_qp_ex ib_uverbs_ex_modify_qp_resp ibv_query_qp ibv_query_port
        ibv_create_srq ib_uverbs_create_srq_resp ibv_modify_srq ibv_query_srq ib_uverbs_create_ah_resp
        verbs_device_ops verbs_device verbs_sysfs_dev verbs_match_ent verbs_cq verbs_srq verbs_mr
        ibv_pd ibv_mr ibv_mw ibv_ah ibv_cq ibv_cq_ex ibv_srq ibv_qp ibv_wc ibv_sge ibv_send_wr ibv_recv_wr
        ibv_qp_init_attr ibv_qp_init_attr_ex ibv_qp_attr ibv_cq_init_attr_ex ibv_context
    }
    let room = size_of::<QueuePairHead>();
    writeln!(text, "_Static_assert(sizeof(struct verbs_qp) <= {room}, \"room for verbs_qp\");").unwrap();
    let offset = "offsetof(struct verbs_qp, comp_mask)";
    writeln!(text, "_Static_assert({offset} == 344 || {offset} == 352 || {offset} == 360, \"{offset}\");")
        .unwrap();
}
