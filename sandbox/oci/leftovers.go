package oci

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// Kept lists the tokens of the containers that the engine holds for jails,
// running or not. If there is no engine, or it does not answer, this user has
// started nothing there.
func (b *Backend) Kept(ctx context.Context) ([]string, error) {
	e, err := b.engine()
	if err != nil {
		return nil, nil
	}
	if socket, ok := strings.CutPrefix(e.host, "unix://"); ok && access(socket) != nil {
		return nil, nil
	}
	label := `{{.Label "` + Label + `"}}`
	if e.name == "podman" {
		label = `{{index .Labels "` + Label + `"}}`
	}
	out, err := e.ask(ctx, nil, "ps", "--all", "--filter", "label="+Label, "--format", label)
	if err != nil {
		return nil, err
	}
	tokens := strings.Fields(string(out))
	slices.Sort(tokens)
	return tokens, nil
}

// End returns how a container that [Backend.Kept] named is removed.
func (b *Backend) End() (commands [][]string, env []string) {
	e, err := b.engine()
	if err != nil {
		return nil, nil
	}
	return e.end(), e.env
}

// end removes the container of a jail, whatever it does.
func (e engine) end() [][]string {
	return [][]string{append([]string{e.path}, e.command("rm", "--force", "--volumes", containerName)[1:]...)}
}

var _ sandbox.Keeper = (*Backend)(nil)
