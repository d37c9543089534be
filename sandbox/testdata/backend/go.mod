module example.org/backend

go 1.26

require github.com/penstock-run/penstock v0.0.0

replace github.com/penstock-run/penstock => ../../..
