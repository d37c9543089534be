package sandbox

import (
	"github.com/penstock-run/penstock/sandbox/internal/cgroup"
	"github.com/penstock-run/penstock/sandbox/internal/usage"
	"github.com/penstock-run/penstock/sandbox/internal/watch"
)

// kept are the features that Start sees to.
var kept = []Feature{FeatureDisk, FeatureInodes, FeatureOutput}

// watched says what of a jail has to be looked at: memory and processes where no group
// limits what words of package cgroup say.
func watched(spec Spec, limited func(word string) bool) watch.Config {
	c := watch.Config{Size: usage.Size{Bytes: spec.Limits.Disk, Inodes: spec.Limits.Inodes}}
	if !limited(cgroup.PIDs) {
		c.PIDs = spec.Limits.PIDs
	}
	if !limited(cgroup.Memory) {
		c.Memory = spec.Limits.Memory
	}
	if spec.Home == "" {
		c.Private = append(c.Private, HomePath)
	} else {
		c.Dirs = append(c.Dirs, spec.Home)
	}
	switch {
	case spec.Workspace == "":
		c.Private = append(c.Private, WorkspacePath)
	case !spec.WorkspaceReadOnly:
		c.Dirs = append(c.Dirs, spec.Workspace)
	}
	return c
}

// features lists the limits that are kept by looking.
func features(c watch.Config) (f []Feature) {
	if c.Memory > 0 {
		f = append(f, FeatureMemory)
	}
	if c.Size.Bytes > 0 {
		f = append(f, FeatureDisk)
	}
	if c.Size.Inodes > 0 {
		f = append(f, FeatureInodes)
	}
	return f
}
