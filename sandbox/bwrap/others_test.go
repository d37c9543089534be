package bwrap_test

import (
	"os/exec"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// BenchmarkStartOfOthers compares a jail, by the library and by the command,
// with others that this host has: each from start to exit, in turn. They are
// the command srt of the npm package @anthropic-ai/sandbox-runtime, and docker
// with the image that deploy/images/debian-root.sh makes.
func BenchmarkStartOfOthers(b *testing.B) {
	const image = "penstock/test:1"
	for _, other := range []struct {
		name, missing string
		there         func() error
		args          []string
	}{
		{"srt", "npm install -g @anthropic-ai/sandbox-runtime brings it",
			func() error { _, err := exec.LookPath("srt"); return err },
			[]string{"srt", "true"}},
		{"docker", "start a daemon, and make its image with deploy/images/debian-root.sh " + image,
			exec.Command("docker", "image", "inspect", image).Run,
			[]string{"docker", "run", "--rm", "--network", "none", image, "true"}},
	} {
		b.Run(other.name, func(b *testing.B) {
			if err := other.there(); err != nil {
				b.Skipf("%s: %v; %s", other.name, err, other.missing)
			}
			compare(b, other.args)
		})
	}
}

func compare(b *testing.B, other []string) {
	penstock := program(b)
	backend := &bwrap.Backend{Init: penstock}
	sandboxtest.Require(b, backend)
	command := func(args ...string) func() error {
		return func() error {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir = b.TempDir()
			return cmd.Run()
		}
	}
	library := func() error {
		_, err := sandbox.Run(b.Context(), backend, sandbox.Spec{Args: []string{"true"}}, sandbox.Streams{})
		return err
	}
	m := medians(b, command(other...), command(penstock, "sandbox", "run", "--", "true"), library)
	b.ReportMetric(ms(m[0]), "other-ms")
	b.ReportMetric(ms(m[1]), "command-ms")
	b.ReportMetric(ms(m[2]), "library-ms")
	b.ReportMetric(float64(m[0])/float64(m[1]), "times-command")
	b.ReportMetric(float64(m[0])/float64(m[2]), "times-library")
}
