package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/schema"
)

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
