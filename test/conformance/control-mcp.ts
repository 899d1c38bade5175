import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { judge, type Judged } from './compare.ts'
import type { Results } from './suite.ts'
import { startProgram } from './targets.ts'

/** Agents enough that the limit of requests a second refuses no request of the suite. */
const tokens = Array.from({ length: 32 }, (_, at) => `token-of-agent-${at}`)

/** A gateway with a control MCP server. */
export interface Control {
  /** Endpoint of the control MCP server. */
  readonly url: string
  /** A token of an agent that may write. */
  readonly token: string
}

/** Starts a gateway with a control MCP server before the server at `upstream`, with one plan. */
export async function startControl(upstream: string, scratch: string): Promise<Control> {
  const plans = join(scratch, 'plans')
  await mkdir(plans)
  await writeFile(join(plans, 'drill.json'), JSON.stringify(plan))
  const sha256 = (token: string) => createHash('sha256').update(token).digest('hex')
  const config = {
    gateway: {
      listen: '127.0.0.1:0',
      control: '127.0.0.1:0',
      environment: 'test',
      stateDir: join(scratch, 'state'),
      controlMcp: {
        listen: '127.0.0.1:0',
        plans,
        tokens: tokens.map((token, at) => ({ name: `agent-${at}`, sha256: sha256(token), tools: 'write' })),
      },
    },
    mcpServers: { fixture: { url: upstream, trusted: true } },
    chaos: { enabled: true },
  }
  const { controlMcp } = await startProgram(config, join(scratch, 'control'))
  return { url: `${controlMcp}/mcp`, token: tokens[0]! }
}

const plan = {
  name: 'drill',
  owner: 'conformance',
  reason: 'to have a plan',
  hypothesis: { steadyState: ['error_ratio < 1%'] },
  targets: { server: 'fixture' },
  faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
  stages: [{ share: '10%', duration: '1s' }],
  gate: { rollbackOn: [{ metric: 'error_ratio', above: '10%' }] },
}

/**
 * Starts a proxy on loopback that adds a token to each request, because the suite sends none. Host and Origin pass
 * unchanged. Resolves with the URL of the proxy, and with a function that closes the proxy.
 */
export async function startTokenProxy({ url }: Control): Promise<{ url: string; close(): void }> {
  const { hostname, port, pathname } = new URL(url)
  let turn = 0
  const server = createServer((from, to) => {
    const headers = { ...from.headers, authorization: `Bearer ${tokens[turn++ % tokens.length]}` }
    const { url: path, method } = from
    const onward = request({ hostname, port, path, method, headers }, (reply) => {
      to.writeHead(reply.statusCode ?? 502, reply.headers)
      reply.pipe(to)
    })
    onward.once('error', () => to.destroy())
    to.once('close', () => onward.destroy())
    from.pipe(onward)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${pathname}`,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}

const NO_TOOL = 'needs a fixture tool that the control MCP server does not have'
const NO_PROMPT = 'needs a fixture prompt that the control MCP server does not have'
const NO_RESOURCES = 'the control MCP server has tools and prompts, and no resources'
const NO_COMPLETION = 'the control MCP server completes no arguments'
const NO_LOGGING = 'the control MCP server sends no log messages'
const NO_TASKS = 'needs the extension for tasks, and its fixture tools'
const NO_SESSION = 'needs a session or a stream that can be resumed; the control MCP server keeps no state'

/**
 * Scenarios that do not apply to the control MCP server, with the reason; of a map, only these checks of the scenario.
 * Checks of such a scenario that pass still count.
 */
const notApplicable: Readonly<Record<string, string | Readonly<Record<string, string>>>> = {
  caching: {
    'sep-2549-resources-list-caching-hints': NO_RESOURCES,
    'sep-2549-resources-templates-list-caching-hints': NO_RESOURCES,
  },
  'completion-complete': NO_COMPLETION,
  'elicitation-sep1034-defaults': NO_TOOL,
  'elicitation-sep1330-enums': NO_TOOL,
  'http-custom-header-server-validation': 'needs a tool with arguments in headers (x-mcp-header)',
  'input-required-result-basic-elicitation': NO_TOOL,
  'input-required-result-basic-list-roots': NO_TOOL,
  'input-required-result-basic-sampling': NO_TOOL,
  'input-required-result-capability-check': NO_TOOL,
  'input-required-result-ignore-extra-params': NO_TOOL,
  'input-required-result-missing-input-response': NO_TOOL,
  'input-required-result-multi-round': NO_TOOL,
  'input-required-result-multiple-input-requests': NO_TOOL,
  'input-required-result-non-tool-request': NO_PROMPT,
  'input-required-result-request-state': NO_TOOL,
  'input-required-result-result-type': NO_TOOL,
  'input-required-result-tampered-state': NO_TOOL,
  'json-schema-2020-12': NO_TOOL,
  'logging-set-level': NO_LOGGING,
  'prompts-get-embedded-resource': NO_PROMPT,
  'prompts-get-simple': NO_PROMPT,
  'prompts-get-with-args': NO_PROMPT,
  'prompts-get-with-image': NO_PROMPT,
  'resources-list': NO_RESOURCES,
  'resources-read-binary': NO_RESOURCES,
  'resources-read-text': NO_RESOURCES,
  'resources-subscribe': NO_RESOURCES,
  'resources-templates-read': NO_RESOURCES,
  'resources-unsubscribe': NO_RESOURCES,
  'sep-2164-resource-not-found': NO_RESOURCES,
  'server-sse-multiple-streams': { 'server-sse-multiple-streams-session': NO_SESSION },
  'server-sse-polling': NO_SESSION,
  'server-stateless': {
    'sep-2575-server-rejects-undeclared-capability': NO_TOOL,
    'sep-2575-missing-capability-http-400': NO_TOOL,
    'sep-2575-http-server-no-independent-requests-on-stream': NO_TOOL,
    'sep-2575-server-no-log-without-loglevel': NO_LOGGING,
  },
  'tasks-capability-negotiation': NO_TASKS,
  'tasks-dispatch-and-envelope': NO_TASKS,
  'tasks-lifecycle': NO_TASKS,
  'tasks-mrtr-composition': NO_TASKS,
  'tasks-mrtr-input': NO_TASKS,
  'tasks-request-headers': NO_TASKS,
  'tasks-request-state-removal': NO_TASKS,
  'tasks-required-task-error': NO_TASKS,
  'tasks-wire-fields': NO_TASKS,
  'tools-call-audio': NO_TOOL,
  'tools-call-elicitation': NO_TOOL,
  'tools-call-embedded-resource': NO_TOOL,
  'tools-call-error': NO_TOOL,
  'tools-call-image': NO_TOOL,
  'tools-call-mixed-content': NO_TOOL,
  'tools-call-sampling': NO_TOOL,
  'tools-call-simple-text': NO_TOOL,
  'tools-call-with-logging': NO_LOGGING,
  'tools-call-with-progress': NO_TOOL,
}

/** A check of this id judges each message of its scenario, so the check applies to every scenario. */
const WIRE = 'wire-schema-valid'

export interface ControlVerdict {
  readonly rows: readonly ControlRow[]
  readonly passed: number
  /** Failed checks that do not apply, as `scenario, check`. */
  readonly excused: readonly string[]
  /** A line for each other failed check. */
  readonly failures: readonly string[]
}

export interface ControlRow {
  readonly scenario: string
  readonly passed: number
  readonly total: number
  /** Reasons why failed checks do not count. */
  readonly reasons: readonly string[]
}

/** Judges the findings about the control MCP server in one era. */
export function judgeControl(results: Results): ControlVerdict {
  const rows: ControlRow[] = []
  const failures: string[] = []
  const excused: string[] = []
  for (const [scenario, checks] of results) {
    const judged = [...judge(checks)]
    const bad = judged.filter(([, { status }]) => status !== 'SUCCESS')
    const reasons = new Set<string>()
    let counted = judged.length
    for (const [id, found] of bad) {
      const reason = reasonFor(scenario, id)
      if (reason === undefined) failures.push(`${scenario}, ${id}: ${wordsOf(found)}`)
      else {
        reasons.add(reason)
        excused.push(`${scenario}, ${id}`)
        counted--
      }
    }
    rows.push({ scenario, passed: judged.length - bad.length, total: counted, reasons: [...reasons] })
  }
  const passed = rows.reduce((sum, row) => sum + row.passed, 0)
  return { rows, passed, excused, failures }
}

/** Returns a line for each entry listed as not applicable that excuses nothing in any era. */
export function needless(verdicts: readonly ControlVerdict[]): readonly string[] {
  const excused = new Set(verdicts.flatMap((verdict) => verdict.excused))
  const isUsed = (scenario: string) => [...excused].some((check) => check.startsWith(`${scenario}, `))
  return Object.entries(notApplicable).flatMap(([scenario, listed]) => {
    const entries = typeof listed === 'string' ? [] : Object.keys(listed).map((id) => `${scenario}, ${id}`)
    const unused = typeof listed === 'string' ? [scenario].filter((name) => !isUsed(name)) : entries
    return unused
      .filter((entry) => !excused.has(entry))
      .map((entry) => `${entry}: is listed as not applicable, but does not fail`)
  })
}

function reasonFor(scenario: string, check: string): string | undefined {
  const listed = check === WIRE ? undefined : notApplicable[scenario]
  return typeof listed === 'object' ? listed[check] : listed
}

const wordsOf = ({ status, errorMessage = 'no message' }: Judged) => `${status}: ${errorMessage}`
