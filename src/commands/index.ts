import type { Commands } from './listed.ts'

/** Commands by group, in the order of their likely use. */
export const commands: Commands = {
  init: {
    group: 'run',
    about: 'writes a first breakwater.yaml',
    load: async () => (await import('./run/init.ts')).init,
  },
  start: {
    group: 'run',
    about: 'runs the gateway',
    load: async () => (await import('./run/start.ts')).start,
  },
  validate: {
    group: 'run',
    about: 'checks a config and lists its errors; exit code 0 or 1',
    load: async () => (await import('./run/validate.ts')).validate,
  },
  import: {
    group: 'run',
    about: "writes a config from clients' configs, or from a registry's server.json",
    load: async () => (await import('./run/import.ts')).importConfigs,
  },
  stdio: {
    group: 'run',
    about: 'puts the mesh around one server on standard input and output',
    load: async () => (await import('./run/stdio.ts')).stdio,
  },
  http: {
    group: 'run',
    about: 'puts the mesh around one server behind HTTP',
    load: async () => (await import('./run/http.ts')).http,
  },
  proxy: {
    group: 'run',
    about: 'stdio or http, under the names of mcp-chaos',
    load: async () => (await import('./run/proxy.ts')).proxy,
  },
  status: {
    group: 'look',
    about: 'servers, breakers, faults and rates of a running gateway',
    load: async () => (await import('./look/status.ts')).status,
  },
  logs: {
    group: 'look',
    about: 'events of a running gateway; or its JSON log in readable form',
    load: async () => (await import('./look/logs.ts')).logs,
  },
  token: {
    group: 'look',
    about: "prints the control token of this user's running gateway",
    load: async () => (await import('./run/token.ts')).token,
  },
  analyze: {
    group: 'look',
    about: 'answers a question in SQL over the index of runs',
    load: async () => (await import('./evidence/analyze.ts')).analyze,
  },
  chaos: {
    group: 'break',
    about: 'drives the faults of a running gateway',
    load: async () => (await import('./break/chaos.ts')).chaos,
  },
  scenario: {
    group: 'break',
    about: 'runs ready-made faults against a running gateway, and checks its reaction',
    load: async () => (await import('./break/scenario.ts')).scenario,
  },
  gameday: {
    group: 'break',
    about: 'runs guarded experiments one after the other, with pauses, notes and actions',
    load: async () => (await import('./break/gameday.ts')).gameday,
  },
  experiment: {
    group: 'compare',
    about: 'compares policy sets on the traffic of a running gateway',
    load: async () => (await import('./break/experiment.ts')).experiment,
  },
  compare: {
    group: 'compare',
    about: 'plays the same tasks under two policy sets, and reports the better set',
    load: async () => (await import('./compare/compare.ts')).compare,
  },
  judge: {
    group: 'compare',
    about: "finds agents' mistakes in a recording, such as blind retries and corrupt values used",
    load: async () => (await import('./compare/judge/judge.ts')).judge,
  },
  runs: {
    group: 'compare',
    about: 'answers questions about all runs so far: verdicts, grades, recovery, coverage',
    load: async () => (await import('./evidence/runs.ts')).runs,
  },
  evidence: {
    group: 'compare',
    about: 'reports stored runs that may support requirements of DORA, NIS2, PCI DSS and others',
    load: async () => (await import('./evidence/evidence.ts')).evidence,
  },
  key: {
    group: 'agents',
    about: 'makes the key with which a person signs envelopes and approvals',
    load: async () => (await import('./agents/key.ts')).key,
  },
  envelope: {
    group: 'agents',
    about: 'drafts, signs and lists the limits within which agents may start experiments',
    load: async () => (await import('./agents/envelope.ts')).envelope,
  },
  proposal: {
    group: 'agents',
    about: 'shows and approves experiments that agents propose',
    load: async () => (await import('./agents/proposal.ts')).proposal,
  },
  mcp: {
    group: 'agents',
    about: 'serves the control MCP server of a running gateway on standard input and output',
    load: async () => (await import('./agents/mcp.ts')).mcp,
  },
  'replay-cycle': {
    group: 'agents',
    about: 'plays an agent’s whole cycle from a script, up to a proposed change of policies',
    load: async () => (await import('./agents/cycle/replay-cycle.ts')).replayCycle,
  },
  demo: {
    group: 'simulate',
    about: 'shows what two percent of failing calls do to tasks; with --live, a whole gateway for a minute',
    load: async () => (await import('./compare/sim/demo.ts')).demo,
  },
  sim: {
    group: 'simulate',
    about: 'replays recorded calls under other policies, and reports the outcomes',
    load: async () => (await import('./compare/sim/replay.ts')).sim,
  },
  study: {
    group: 'simulate',
    about: 'answers a question by simulation, such as the effect of retries on a pausing server',
    load: async () => (await import('./compare/sim/study.ts')).study,
  },
  sweep: {
    group: 'simulate',
    about: 'simulates the demo at many error rates and calls a task, and compares with theory',
    load: async () => (await import('./compare/sim/sweep.ts')).sweep,
  },
  search: {
    group: 'simulate',
    about: 'searches for faults that slightly violate an SLO, on simulated servers',
    load: async () => (await import('./compare/sim/search.ts')).search,
  },
  help: {
    group: 'help',
    about: 'prints this text, or the help of a COMMAND',
    load: async () => (await import('./help.ts')).helpOn(commands),
  },
  completion: {
    group: 'help',
    about: 'prints the completion script for bash or zsh',
    load: async () => (await import('./completion.ts')).completionOf(commands),
  },
  version: {
    group: 'help',
    about: 'prints the version of this program',
    load: async () => (await import('./version.ts')).version,
  },
}
