package servecmd

import (
	"slices"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/mcphttp"
	"github.com/penstock-run/penstock/cmd/internal/mcptools"
	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// checkModels refuses settings about models that mean nothing.
func checkModels(c cli.ServeConfig) error {
	for _, word := range c.MCPAllow {
		if !slices.Contains(mcptools.Allowances, word) {
			return cli.Usage("", "--mcp-allow: %w", input.NotOneOf(word, mcptools.Allowances))
		}
	}
	if c.MCPTotalJobs < 0 || c.MCPTotalCost < 0 {
		return cli.Usage("0 is no limit", "--mcp-total-jobs and --mcp-total-cost are not negative")
	}
	return nil
}

// models answers models over HTTP, within the settings.
func models(shell cli.Shell, p *pool.Pool) *mcphttp.Handler {
	c := shell.Config.Serve
	return mcphttp.New(mcphttp.Config{
		Client: p.Client, Allow: c.MCPAllow, Bounds: mcptools.Bounds{Jobs: c.MCPTotalJobs, USD: c.MCPTotalCost}, Release: shell.Release,
	})
}
