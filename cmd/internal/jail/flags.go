package jail

import (
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/jobs"
)

// Flags are the flags that describe a jail. Jobs and sandbox run share them.
type Flags struct {
	Image string
	Env   []string // NAME=VALUE

	sandbox               jobs.Sandbox
	network, memory, disk string
	outputRate, traffic   string
}

// Add defines the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	s := &f.sandbox
	flags.StringVar(&f.Image, "image", "", "image for the root file system of the jail")
	flags.Var(input.OneOf(&s.Backend, BackendNames()...), "backend", "jail: auto (default), bwrap, systemd, oci, seatbelt or none")
	flags.Var(input.OneOf(&s.Preset, "strict", "browser", "debug", "offline"), "preset", "strictness of the jail: strict (default), browser, debug or offline")
	flags.StringSliceVar(&s.AllowWeaker, "allow-weaker", nil, "features of the jail that may be missing on the host")
	flags.Var(input.OneOf(&f.network, string(jobs.NetworkNone), string(jobs.NetworkAllowlist), string(jobs.NetworkFull)), "network", "none (default: a job reaches the model API only), allowlist or full")
	flags.StringSliceVar(&s.AllowHosts, "allow-host", nil, "host[:port] that network allowlist permits")
	flags.StringVar(&f.memory, "memory", "", "memory limit, as in 2GiB")
	flags.Float64Var(&s.Limits.CPUs, "cpus", 0, "processors that the jail may use")
	flags.IntVar(&s.Limits.PIDs, "pids", 0, "processes and threads that the jail may have")
	flags.IntVar(&s.Limits.CPUWeight, "cpu-weight", 0, "share of busy processors, relative to 100, the default")
	flags.StringVar(&f.disk, "disk", "", "growth limit of workspace and home, as in 10GiB")
	flags.Int64Var(&s.Limits.Inodes, "inodes", 0, "limit on new files and directories in workspace and home")
	flags.StringVar(&f.outputRate, "output-rate", "", "output per second, as in 1MiB; a faster program is slowed")
	flags.StringVar(&f.traffic, "traffic", "", "bytes to and from the hosts of network allowlist, as in 1GiB")
	flags.IntVar(&s.Limits.Connections, "connections", 0, "simultaneous connections to these hosts (default 256)")
	flags.StringArrayVar(&f.Env, "env", nil, "variable K=V inside (repeatable)")
}

// Sandbox returns what the flags say, in the words of jobs.
func (f *Flags) Sandbox() (jobs.Sandbox, error) {
	s := f.sandbox
	s.Network = jobs.Network(f.network)
	for _, size := range []struct {
		flag, text string
		to         *jobs.Bytes
	}{
		{"memory", f.memory, &s.Limits.Memory}, {"disk", f.disk, &s.Limits.Disk},
		{"output-rate", f.outputRate, &s.Limits.OutputRate}, {"traffic", f.traffic, &s.Limits.Traffic},
	} {
		var err error
		if *size.to, err = ParseSize(size.flag, size.text); err != nil {
			return s, err
		}
	}
	return s, nil
}

// ParseSize reads the size that a flag gives; without one it is 0.
func ParseSize(flag, text string) (jobs.Bytes, error) {
	if text == "" {
		return 0, nil
	}
	size, err := jobs.ParseBytes(text)
	if err != nil {
		return 0, cli.Usage("", "--%s: %w", flag, err)
	}
	return size, nil
}

// ParseEnv reads the variables of --env.
func (f *Flags) ParseEnv() (map[string]string, error) {
	env, err := input.Pairs(f.Env)
	if err != nil {
		return nil, cli.Usage("", "--env: %w", err)
	}
	return env, nil
}

// PolicyFlag is the flag of the commands that start jails, and a setting.
func PolicyFlag(cfg *cli.Config) *pflag.FlagSet {
	flags := pflag.NewFlagSet("policy", pflag.ContinueOnError)
	flags.StringVar(&cfg.Policy, "policy", "", "policy file: what jails may access, and what jobs may request")
	return cli.Settings(flags)
}
