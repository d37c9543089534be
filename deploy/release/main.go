// Command release says of a program which modules it contains: as a bill of materials in the
// form of CycloneDX, and with the texts of their licences. It reads what the Go compiler has
// written into the program, not the source beside it.
//
//	go run . PROGRAM VERSION SBOM NOTICES
package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: release PROGRAM VERSION SBOM NOTICES")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func write(program, version, sbom, notices string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	modules, err := modulesOf(info)
	if err != nil {
		return err
	}
	bom, err := encode(materials(info, filepath.Base(program), version, modules))
	if err != nil {
		return err
	}
	if err := validate(bom); err != nil {
		return fmt.Errorf("the bill of materials is not what its schema wants: %w", err)
	}
	if err := os.WriteFile(sbom, bom, 0o644); err != nil {
		return err
	}
	return os.WriteFile(notices, texts(modules), 0o644)
}
