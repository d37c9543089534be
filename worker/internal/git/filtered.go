package git

import (
	"bytes"
	"context"
	"strings"
)

// Filtered lists those of paths for which attributes name a filter, as "path (filter)",
// whether or not such a filter is defined.
func (r Repo) Filtered(ctx context.Context, paths []string) ([]string, error) {
	return r.filtered(ctx, strings.Join(paths, "\x00")+"\x00")
}

// AllFiltered is [Repo.Filtered] for the files in the index, by the attributes that
// exist.
func (r Repo) AllFiltered(ctx context.Context) ([]string, error) {
	var all bytes.Buffer
	if err := r.Pipe(ctx, nil, &all, "ls-files", "-z"); err != nil {
		return nil, err
	}
	return r.filtered(ctx, all.String(), "--cached")
}

func (r Repo) filtered(ctx context.Context, paths string, flags ...string) (list []string, err error) {
	var out bytes.Buffer
	args := append([]string{"check-attr", "-z", "--stdin"}, flags...)
	if err := r.Pipe(ctx, strings.NewReader(paths), &out, append(args, "filter")...); err != nil {
		return nil, err
	}
	fields := strings.Split(out.String(), "\x00")
	for i := 0; i+2 < len(fields); i += 3 {
		switch value := fields[i+2]; value {
		case "unspecified", "unset", "set":
		default:
			list = append(list, fields[i]+" ("+value+")")
		}
	}
	return list, nil
}
