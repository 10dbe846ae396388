//! Generates the contract's code from idl/ into OUT_DIR, by the thrift compiler.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let compiler = env::var("THRIFT").unwrap_or_else(|_| "thrift".into());
    println!("cargo:rerun-if-env-changed=THRIFT");
    for name in ["message", "producer", "consumer"] {
        let file = format!("idl/{name}.thrift");
        println!("cargo:rerun-if-changed={file}");
        let made = Command::new(&compiler).args(["--gen", "rs", "-out", &out, &file]).status();
        if !made.as_ref().is_ok_and(|status| status.success()) {
            eprintln!("{compiler} --gen rs {file}: {made:?}: install the thrift compiler (Debian: thrift-compiler)");
            std::process::exit(1);
        }
        // Code that is included cannot have attributes of a file; src/lib.rs has them.
        let made = Path::new(&out).join(format!("{name}.rs"));
        let text = fs::read_to_string(&made).expect("the compiler has written it");
        let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("#![")).collect();
        fs::write(&made, kept.join("\n")).expect("OUT_DIR can be written");
    }
}
