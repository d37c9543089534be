package insidecmd

import (
	"bufio"
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/mcpstdio"
)

func terminals(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "terminals", Short: "In a job's jail: give the agent terminals, as an MCP server", Args: cobra.NoArgs,
		Long: `Terminals speaks the Model Context Protocol over standard input and output, until the
input ends. Its tools create, write, read, list and close terminals of the jail: the same
ones that penstock attach opens and shows. Agents get this server with --terminals.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := connect()
			if err != nil {
				return err
			}
			err = mcpstdio.Serve(cmd.Context(), terminalServer(newTerminalTools(client), shell.Release), shell.In, shell.Out)
			if errors.Is(err, bufio.ErrTooLong) {
				return cli.Usage("", "a line has more than %d bytes", mcpstdio.MaxLine)
			}
			return err
		},
	}
}

// terminalServer offers the tools to clients of the Model Context Protocol.
func terminalServer(t *terminalTools, release string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "penstock-terminals", Version: release}, &mcp.ServerOptions{
		Instructions: "Terminals for programs that keep running or need typed input. People may watch them, and type.",
		// The tools never change, and the server sends no log.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	addTool(server, "terminal_create", "Open a terminal with a program that keeps running beside you. People may watch it, and type in it.", t.create)
	addTool(server, "terminal_write", "Type in a terminal.", t.write)
	addTool(server, "terminal_read", "Read the output of a terminal, including control characters.", t.show)
	addTool(server, "terminal_list", "List the terminals, including those of people.", t.listed)
	addTool(server, "terminal_close", "Close a terminal, which ends its program. Its output can still be read.", t.end)
	return server
}

// addTool makes a tool of a function.
func addTool[T any](server *mcp.Server, name, about string, do func(context.Context, T) (any, error)) {
	mcpstdio.AddTool(server, &mcp.Tool{Name: name, Description: about}, func(ctx context.Context, _ *mcp.CallToolRequest, in T) (any, error) {
		return do(ctx, in)
	})
}
