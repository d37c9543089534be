package insidecmd

import (
	"bufio"
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/mcpbridge"
)

func bridge(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "mcp-bridge SERVER", Short: "In a job's jail: connect the agent to an MCP server of its job that has a URL", Args: cobra.ExactArgs(1),
		Long: `Mcp-bridge speaks the Model Context Protocol over standard input and output, until the
input ends, and sends the messages to the worker. The worker sends them to the server that
the job calls SERVER, with the headers and secrets that the job has for it. Agents start this
program themselves.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			request := func(ctx context.Context, method string, header http.Header, body []byte) (*http.Response, error) {
				return client.MCP(ctx, args[0], method, header, body)
			}
			err = mcpbridge.Run(cmd.Context(), args[0], request, shell.In, shell.Out)
			if errors.Is(err, bufio.ErrTooLong) {
				return cli.Usage("", "a line has more than %d bytes", mcpbridge.MaxLine)
			}
			return err
		},
	}
}
