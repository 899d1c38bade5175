import { setTimeout } from 'node:timers/promises'
import { type Mode, modes } from '../../fixtures/counting/modes.ts'
import { until } from '../../support/until.ts'
import { Agent, type Told } from '../support/agent.ts'
import { CountingProcess, CountingServer, type Era } from '../support/counting.ts'
import { Gateway, type Json } from '../support/gateway.ts'

/** A path of calls: an agent of one era, the gateway, one server or two replicas. */
export interface Route {
  readonly agent: Era
  readonly transport: 'http' | 'stdio' | 'replicas'
}

export const routes: readonly Route[] = (['legacy', 'modern'] as const).flatMap((agent) =>
  (['http', 'stdio', 'replicas'] as const).map((transport) => ({ agent, transport })),
)

export const titleOf = ({ agent, transport }: Route): string => `${agent} agent, ${transport}`

/** The result of one mode on one route. */
export interface Cell {
  readonly mode: string
  /** Runs of the write and the agent's outcome; then the same for three sends under one key. */
  readonly write: string
  readonly keyed: string
  readonly read: string
  readonly violations: readonly string[]
}

interface Subject {
  readonly entry: Json
  readonly down: () => Promise<void>
  readonly up: () => Promise<void>
  readonly runs: () => Promise<Record<string, number>>
}

/** Downtime of a server, in milliseconds: shorter than the retries of a read. */
const DOWN_MS = 150

/** Time after which an abandoned tool has run, if ever; in milliseconds. */
const SETTLED_MS = 2_000

/**
 * Longest time a healthy server may stay unreachable after a failure (an open breaker, a process that starts), in
 * milliseconds.
 */
const RECOVERED_MS = 12_000

/** Concurrent cells. */
const AT_ONCE = 15

/** Runs every mode on a route, with retries and hedges on. */
export async function runRoute(server: Era, route: Route): Promise<Cell[]> {
  const subjects = await subjectsOf(server, route)
  const names = modes.map(({ name }) => name)
  const gateway = await Gateway.start({
    servers: Object.fromEntries(
      subjects.map(({ entry }, index) => [
        names[index],
        { ...entry, era: server, trusted: true, maxReply: '256KiB' },
      ]),
    ),
    policies: { defaults: { hedge: { after: 100 }, attemptTimeout: { timeout: '1s' } } },
  })
  await gateway.waitFor('up', ...names)
  const finish: (() => Promise<Cell>)[] = []
  const queue = modes.map((mode, index) => ({ mode, index, subject: subjects[index] as Subject }))
  const worker = async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      const { mode, subject } = next
      // Alternates the endpoint, so every mode meets the server's and the aggregate's endpoint over every transport.
      const shift = Number(route.transport === 'replicas') + Number(route.agent === 'modern')
      const isAll = (next.index + shift) % 2 === 1
      const agent = await Agent.open(route.agent, gateway.mcp(isAll ? undefined : mode.name))
      finish.push(
        await runCell(mode, subject, route, server, { agent, prefix: isAll ? `${mode.name}__` : '' }),
      )
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  await setTimeout(SETTLED_MS)
  const cells = await Promise.all(finish.map((end) => end()))
  const stuck = await callsStuck(gateway)
  await gateway.program.kill()
  return names.map((name) => {
    const cell = cells.find(({ mode }) => mode === name) as Cell
    const left = stuck[name]
    return left === undefined
      ? cell
      : { ...cell, violations: [...cell.violations, `${left} calls are stuck in the gateway`] }
  })
}

/** Returns calls still under way after their callers left, by server. */
async function callsStuck(gateway: Gateway): Promise<Record<string, number>> {
  const underWay = () => gateway.sums('breakwater_inflight', 'server', '')
  await until('no call is under way', async () => Object.keys(await underWay()).length === 0, 5_000).catch(
    () => undefined,
  )
  return underWay()
}

/** Makes every call once; resolves to a function that checks the counts later. */
async function runCell(
  mode: Mode,
  subject: Subject,
  { transport }: Route,
  server: Era,
  { agent, prefix }: { agent: Agent; prefix: string },
): Promise<() => Promise<Cell>> {
  const tellings: Telling[] = []
  const tell = async (part: string, tool: string, args: { token: string; mode?: string }, key?: string) => {
    const told = await agent.call(prefix + tool, args, key === undefined ? {} : { key })
    tellings.push({ part, token: args.token, told })
    return told
  }
  /** Takes the server down at the start of the call, if the mode asks for it. */
  const failing = async (part: string, tool: string, token: string, key?: string) => {
    if (mode.down !== true) return tell(part, tool, { token, mode: mode.name }, key)
    await subject.down()
    const telling = tell(part, tool, { token, mode: mode.name }, key)
    await setTimeout(DOWN_MS)
    await subject.up()
    return telling
  }
  const good = async (part: string) => {
    const deadline = performance.now() + RECOVERED_MS
    for (let tries = 1; ; tries++) {
      const told = await tell(part, 'write', { token: `${part}-${mode.name}-${tries}` })
      if (told.kind === 'result') return
      if (performance.now() > deadline) return void broken.push(`no ${part} call succeeds (${wordOf(told)})`)
      await setTimeout(100)
    }
  }
  const broken: string[] = []

  await good('first')
  const write = await failing('write', 'write', `write-${mode.name}`)
  const keyed: Told[] = []
  for (let send = 0; send < 3; send++)
    keyed.push(
      send === 0
        ? await failing('keyed', 'write', `keyed-${mode.name}`, `key-${mode.name}`)
        : await tell('keyed', 'write', { token: `keyed-${mode.name}`, mode: mode.name }, `key-${mode.name}`),
    )
  const read = await failing('read', 'read', `read-${mode.name}`)
  await good('last')

  return async () => {
    const runs = await subject.runs()
    const times = (token: string) => runs[token] ?? 0
    const hasSessions = transport !== 'stdio' && server === 'legacy'
    const hasToAnswer = mode.answered === 'always' || (mode.answered === 'legacy_http' && hasSessions)
    if (hasToAnswer && (write.kind === 'error' || write.kind === 'nothing'))
      broken.push(`write: not answered (${wordOf(write)})`)
    return {
      mode: mode.name,
      write: `${times(`write-${mode.name}`)} ${wordOf(write)}`,
      keyed: `${times(`keyed-${mode.name}`)} ${keyed.map(wordOf).join(',')}`,
      read: `${times(`read-${mode.name}`)} ${wordOf(read)}`,
      violations: [
        ...broken,
        ...new Set(tellings.flatMap((telling) => faultsOf(telling, tellings, times, mode))),
      ],
    }
  }
}

/** The outcome an agent got for a call with a token. */
interface Telling {
  readonly part: string
  readonly token: string
  readonly told: Told
}

/** Returns contradictions between the agent's outcome and the real runs. */
function faultsOf(
  telling: Telling,
  all: readonly Telling[],
  times: (token: string) => number,
  { refuses }: Mode,
): string[] {
  const { part, token, told } = telling
  const runs = times(token)
  /** A later send of the call may have run, and the earlier outcome was true at its time. */
  const ranLater = all
    .slice(all.indexOf(telling) + 1)
    .some((later) => later.token === token && (later.told.kind !== 'error' || later.told.sent === true))
  const faults: string[] = []
  const allowed = part === 'keyed' && refuses === true ? 2 : 1
  if (part !== 'read' && runs > allowed) faults.push(`${part}: ran ${runs} times`)
  if (told.kind === 'nothing') faults.push(`${part}: no response (${told.why})`)
  if (told.kind === 'result' && runs === 0) faults.push(`${part}: answered, and never ran`)
  if (told.kind === 'error' && part !== 'read' && runs > 0 && told.sent !== true && !ranLater)
    faults.push(`${part}: ran, and its agent was told "${told.reason}" with sent: ${String(told.sent)}`)
  return faults
}

function wordOf(told: Told): string {
  switch (told.kind) {
    case 'result':
      return 'ok'
    case 'server_error':
      return 'own'
    case 'error':
      return told.sent === true ? 'sent' : 'unsent'
    case 'nothing':
      return 'none'
  }
}

async function subjectsOf(server: Era, { transport }: Route): Promise<Subject[]> {
  if (transport === 'stdio') {
    const processes = await Promise.all(modes.map(() => CountingProcess.prepare(server)))
    return processes.map((one) => ({
      entry: one.entry,
      down: async () => one.kill(),
      up: async () => undefined,
      runs: async () => one.runs(),
    }))
  }
  const each = transport === 'http' ? 1 : 2
  const counting = await CountingServer.start(server, modes.length * each)
  return modes.map((_, index) => {
    const own = Array.from({ length: each }, (_, nth) => index * each + nth)
    const all = async (action: 'up' | 'down') => {
      await Promise.all(own.map((endpoint) => counting.tell(endpoint, action)))
    }
    return {
      entry: { urls: own.map((endpoint) => counting.urls[endpoint]) },
      down: () => all('down'),
      up: () => all('up'),
      runs: () => counting.runs(),
    }
  })
}

export function tableOf(results: ReadonlyMap<string, readonly Cell[]>): string {
  const titles = [...results.keys()]
  const rows = modes.map(({ name }) => [
    name,
    ...titles.map((title) => {
      const cell = results.get(title)?.find(({ mode }) => mode === name)
      return cell === undefined
        ? ''
        : `${cell.violations.length > 0 ? '! ' : ''}${cell.write} | ${cell.keyed} | ${cell.read}`
    }),
  ])
  const table = [['mode', ...titles], ...rows]
  const widths = (table[0] as string[]).map((_, column) =>
    Math.max(...table.map((row) => row[column]?.length ?? 0)),
  )
  const lines = table.map((row) => row.map((text, column) => text.padEnd(widths[column] ?? 0)).join('   '))
  const instead = modes.flatMap(({ name, overStdio }) =>
    overStdio === undefined ? [] : [`  ${name}: not over stdio: ${overStdio}`],
  )
  return [
    'runs and answers of: a write | a write sent three times under one key | a read; "!" is wrong',
    '  ok: a result; own: an error of the server; sent, unsent: an error of the gateway that says so; none: no response',
    ...instead,
    ...lines,
  ].join('\n')
}

export function violationsOf(title: string, cells: readonly Cell[]): string[] {
  return cells.flatMap(({ mode, violations }) => violations.map((what) => `${title}, ${mode}: ${what}`))
}
