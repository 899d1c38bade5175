import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { start } from './children.ts'
import type { Control } from './control-mcp.ts'

const LIMIT_MS = 60_000

/** Eras of the Inspector, by its option `--protocol-era`. */
const eras = ['legacy', 'modern'] as const

const spec = {
  name: 'inspected',
  owner: 'conformance',
  reason: 'to use each tool',
  hypothesis: { steadyState: ['error_ratio < 1%'] },
  targets: { server: 'fixture' },
  faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
  stages: [{ share: '10%', duration: '1s' }],
  gate: { rollbackOn: [{ metric: 'error_ratio', above: '10%' }] },
}

/**
 * A call of each tool. `refused`: the code of the error that the tool answers, because no run can begin without a
 * person, no call met a fault, and there is no GameDay.
 */
const calls: Readonly<Record<string, { readonly given?: object; readonly refused?: string }>> = {
  get_status: {},
  list_servers: {},
  list_fault_kinds: { given: { type: 'conn.latency' } },
  list_plans: {},
  get_plan: { given: { plan: 'drill' } },
  estimate_blast_radius: { given: { plan: 'drill' } },
  suggest_next: { given: { limit: 3 } },
  propose_run: { given: { spec, why: 'to use each tool' } },
  start_run: { given: { proposal: 'p-none', key: 'k' }, refused: 'expired' },
  get_run: { given: { run: 'none' }, refused: 'not_found' },
  stop_run: { given: { all: true } },
  start_gameday: { given: { plan: 'none', key: 'k' }, refused: 'not_found' },
  get_gameday: { given: { id: 'none' }, refused: 'not_found' },
  update_gameday: { given: { id: 'none', action: 'pause' }, refused: 'not_found' },
  list_runs: {},
  query_runs: { given: { question: 'coverage' } },
  list_incidents: {},
  explain_call: { given: { task: 'none' }, refused: 'not_found' },
}

interface Called {
  readonly isError?: boolean
  readonly content?: readonly { readonly text?: string }[]
  readonly structuredContent?: unknown
}

/** Uses each tool of the control MCP server by the Inspector's command line. Returns a line for each failure. */
export async function inspect(
  node: string,
  { url, token }: Control,
  scratch: string,
): Promise<{ readonly passed: number; readonly failures: readonly string[] }> {
  const home = join(dirname(node), '../@modelcontextprotocol/inspector')
  const script = join(home, 'clients/launcher/build/index.js')
  const failures: string[] = []
  let passed = 0
  for (const era of eras) {
    const ask = async <Answer>(name: string, ...options: readonly string[]): Promise<Answer | undefined> => {
      const output = join(scratch, `inspector-${era}-${name}.json`)
      const args = ['--cli', url, '--transport', 'http', '--header', `Authorization: Bearer ${token}`]
      const more = ['--protocol-era', era, '--quiet', '--output', output, ...options]
      await start(node, [script, ...args, ...more], `${output}.log`).ended(LIMIT_MS)
      const text = await readFile(output, 'utf8').catch(() => undefined)
      if (text === undefined) failures.push(`Inspector, ${era}, ${name}: no result, see ${output}.log`)
      return text === undefined ? undefined : (JSON.parse(text) as Answer)
    }
    const listed = await ask<{ tools: { name: string }[] }>('tools-list', '--method', 'tools/list')
    const names = listed?.tools.map(({ name }) => name).sort() ?? []
    if (JSON.stringify(names) === JSON.stringify(Object.keys(calls).sort())) passed++
    else failures.push(`Inspector, ${era}, tools/list: ${names.join(', ')}`)
    for (const [tool, { given = {}, refused }] of Object.entries(calls)) {
      const options = ['--method', 'tools/call', '--tool-name', tool]
      const called = await ask<Called>(tool, ...options, '--tool-args-json', JSON.stringify(given))
      if (called === undefined) continue
      const text = called.content?.[0]?.text ?? ''
      const isExpected =
        refused === undefined
          ? called.isError !== true && called.structuredContent !== undefined
          : called.isError === true && (JSON.parse(text) as { code: string }).code === refused
      if (isExpected) passed++
      else failures.push(`Inspector, ${era}, ${tool}: ${text}`)
    }
  }
  return { passed, failures }
}
