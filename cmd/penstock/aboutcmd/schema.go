package aboutcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/schema"
)

// NewSchema returns the command schema.
func NewSchema(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "schema " + strings.Join(schema.Names(), "|") + "|openapi|asyncapi [NAME]", Short: "Print the JSON Schema of a document",
		Long: "Print the JSON Schema of a document. schema event KIND describes the data of one kind of event, and schema\noperation NAME the request, the answer and the refusal of one operation of the bus. schema openapi prints the HTTP API\nas a document of OpenAPI 3.1, and schema asyncapi the subjects and messages of the bus as one of AsyncAPI 3.0.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			var data []byte
			var err error
			hint := ""
			switch {
			case len(args) == 1 && args[0] == "openapi":
				data, err = schema.OpenAPI()
			case len(args) == 1 && args[0] == "asyncapi":
				data, err = schema.AsyncAPI()
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
			_, err = shell.Out.Write(append(data, '\n'))
			return err
		},
	}
}
