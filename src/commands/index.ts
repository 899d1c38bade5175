import type { Commands } from './listed.ts'

/** The commands, in the order in which somebody may want them. */
export const commands: Commands = {
  init: {
    about: 'writes a breakwater.yaml to begin with',
    load: async () => (await import('./init.ts')).init,
  },
  start: { about: 'runs the gateway', load: async () => (await import('./start.ts')).start },
  validate: {
    about: 'checks a config and says what is wrong; exit code 0 or 1',
    load: async () => (await import('./validate.ts')).validate,
  },
  import: {
    about: "writes a config from those of clients, or from a registry's server.json",
    load: async () => (await import('./import.ts')).importConfigs,
  },
  status: {
    about: 'servers, breakers, faults and rates of a running gateway',
    load: async () => (await import('./status.ts')).status,
  },
  logs: {
    about: 'what happens in a running gateway; or its JSON log, as people read it',
    load: async () => (await import('./logs.ts')).logs,
  },
  chaos: {
    about: 'drives the faults of a running gateway',
    load: async () => (await import('./chaos.ts')).chaos,
  },
  experiment: {
    about: 'compares policy sets on the traffic of a running gateway',
    load: async () => (await import('./experiment.ts')).experiment,
  },
  compare: {
    about: 'plays the same tasks under two policy sets, and says which does better',
    load: async () => (await import('./compare.ts')).compare,
  },
  sim: {
    about: 'plays recorded calls again under other policies, and says what would have become of them',
    load: async () => (await import('./sim.ts')).sim,
  },
  scenario: {
    about: 'runs ready-made faults against a running gateway, and checks what it makes of them',
    load: async () => (await import('./scenario.ts')).scenario,
  },
  study: {
    about: 'answers a question by simulation, such as what retries do to a server that pauses',
    load: async () => (await import('./study.ts')).study,
  },
  demo: {
    about: 'what two percent of failing calls do to tasks; with --live, all of it at work for a minute',
    load: async () => (await import('./demo.ts')).demo,
  },
  sweep: {
    about: 'the same at many rates of errors and many calls a task, against what theory predicts',
    load: async () => (await import('./sweep.ts')).sweep,
  },
  search: {
    about: 'searches for faults that violate an SLO by a little, on simulated servers',
    load: async () => (await import('./search.ts')).search,
  },
  stdio: {
    about: 'puts the mesh around one server on standard input and output',
    load: async () => (await import('./stdio.ts')).stdio,
  },
  http: {
    about: 'puts the mesh around one server behind HTTP',
    load: async () => (await import('./http.ts')).http,
  },
  proxy: {
    about: 'stdio or http, as mcp-chaos calls them',
    load: async () => (await import('./proxy.ts')).proxy,
  },
  token: {
    about: 'prints the control token of a running gateway of this user',
    load: async () => (await import('./token.ts')).token,
  },
  help: {
    about: 'this text, or with a COMMAND that of the command',
    load: async () => (await import('./help.ts')).helpOn(commands),
  },
  version: {
    about: 'the version of this program',
    load: async () => (await import('./version.ts')).version,
  },
}
