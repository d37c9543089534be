package main

import (
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/schema"
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

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema " + strings.Join(schema.Names(), "|") + " [NAME]", Short: "Print the JSON Schema of a document",
		Long: "Print the JSON Schema of a document. schema event KIND describes the data of one kind of event, and schema\noperation NAME the request, the answer and the refusal of one operation of the bus.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			var data []byte
			var err error
			hint := ""
			switch {
			case len(args) == 1:
				data, err = schema.For(args[0])
			case args[0] == "event":
				data, err = schema.ForKind(args[1])
				hint = "docs/reference/events.md lists all kinds"
			case args[0] == "operation":
				data, err = schema.ForOperation(args[1])
				hint = "docs/reference/operations.md lists all operations"
			default:
				return cli.Usage("", "schema %s: only event and operation take a second argument", args[0])
			}
			if err != nil {
				return cli.Usage(hint, "%w", err)
			}
			_, err = a.out.Write(append(data, '\n'))
			return err
		},
	}
}

func (a *app) configCommand() *cobra.Command {
	config := &cobra.Command{Use: "config", Short: "Show the settings"}
	config.AddCommand(&cobra.Command{
		Use: "view", Short: "Print every setting in effect, in the form of a settings file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.format == cli.Table || a.format == cli.YAML {
				return a.cfg.YAML(a.out)
			}
			plain, err := a.cfg.Plain()
			if err != nil {
				return err
			}
			return cli.View[map[string]any]{}.One(a.out, cli.JSON, plain)
		},
	})
	return config
}
