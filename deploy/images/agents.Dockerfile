# An image for isolation container with the agents baked in. The worker never fetches an
# image: build it on, or copy it to, each worker's host. try.sh builds it and runs jobs of its
# agents, on a base of the same make, since it has no registry to take this one from.
#
#   docker build --tag acme/agents:1 --file agents.Dockerfile .
#   penstock run --isolation container --image acme/agents:1 --agent claude "…"
#
# What an image needs: Linux for the worker's architecture, /bin/sh for setup and
# check commands, git, and the agent's program in a directory of the job's PATH
# (/usr/local/bin is one). It needs no user, no entry point and no key: the jail's
# first program, the user and the way to the model API come from the worker.
# docs/how-to/containers.md says how the same is done without a registry.
ARG BASE=node:24-bookworm-slim
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends \
      bash ca-certificates git python3 procps ripgrep \
    && rm -rf /var/lib/apt/lists/*
# With versions, if all hosts shall have the same: "@openai/codex@1.2.3 …"
ARG AGENTS="@anthropic-ai/claude-code @openai/codex @google/gemini-cli"
RUN npm install --global --no-audit --no-fund ${AGENTS} && npm cache clean --force
# What the repository of the job needs to build and test goes here as well: the
# jail has no network to install it over.
