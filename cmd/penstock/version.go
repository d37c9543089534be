package main

import (
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
)

// version is what the build gives; empty outside of make build.
var version string

// release is the version, as far as this build knows it.
func release() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}

func (a *app) versionCommand() *cobra.Command {
	type about struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		System  string `json:"system"`
	}
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := about{release(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if a.format == cli.Table {
				_, err := io.WriteString(a.out, console.Sprintf("penstock %s (%s, %s)\n", v.Version, v.Go, v.System))
				return err
			}
			return cli.View[about]{ID: func(v about) string { return v.Version }}.One(a.out, a.format, v)
		},
	}
}
