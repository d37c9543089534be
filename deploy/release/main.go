// Command release says of a program which modules it contains: as a bill of materials in the
// form of CycloneDX, with the texts of their licences, and as the copyright file of a Debian
// package. It reads what the Go compiler has written into the program, not the source beside
// it.
//
//	go run . [-sbom FILE] [-notices FILE] [-copyright FILE] PROGRAM VERSION
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// files are where each list is written to. Those without a name are not made.
type files struct{ sbom, notices, copyright string }

func main() {
	var to files
	flag.StringVar(&to.sbom, "sbom", "", "file for the bill of materials")
	flag.StringVar(&to.notices, "notices", "", "file for the licences of all modules")
	flag.StringVar(&to.copyright, "copyright", "", "file for them in Debian's machine-readable form")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: release [-sbom FILE] [-notices FILE] [-copyright FILE] PROGRAM VERSION")
		os.Exit(2)
	}
	if err := to.write(flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (to files) write(program, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	modules, err := modulesOf(info)
	if err != nil {
		return err
	}
	if to.sbom != "" {
		bom, err := encode(materials(info, filepath.Base(program), version, modules))
		if err != nil {
			return err
		}
		if err := validate(bom); err != nil {
			return fmt.Errorf("the bill of materials is not what its schema wants: %w", err)
		}
		if err := os.WriteFile(to.sbom, bom, 0o644); err != nil {
			return err
		}
	}
	if to.notices != "" {
		if err := os.WriteFile(to.notices, texts(modules), 0o644); err != nil {
			return err
		}
	}
	if to.copyright == "" {
		return nil
	}
	// Where this is run, the licence of the program lies two directories above.
	own := module{path: ours}
	if err := own.read(filepath.Join("..", "..")); err != nil {
		return err
	}
	return os.WriteFile(to.copyright, copyright(own, modules), 0o644)
}
