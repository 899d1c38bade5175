import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { start, stopAll } from './children.ts'
import { compare, type Comparison } from './compare.ts'
import { type ControlVerdict, judgeControl, needless, startControl, startTokenProxy } from './control-mcp.ts'
import { type Era, eras } from './eras.ts'
import { inspect } from './inspector.ts'
import { findSuite, type Suite } from './suite.ts'
import { startFixture, startGateway } from './targets.ts'

const INSTALL_LIMIT_MS = 300_000

const toolsScript = fileURLToPath(new URL('../../../.ci/tools.sh', import.meta.url))

/** Runs the suite against the fixture of `era`, directly and then through the gateway. */
async function check(suite: Suite, era: Era, scratch: string): Promise<Comparison> {
  const scored = await suite.scored(era.requirements)
  const fixture = await startFixture(era.fixture, scratch)
  const direct = await suite.run(fixture, era.requirements, join(scratch, 'direct'))
  const gateway = await startGateway(fixture, scratch)
  const through = await suite.run(gateway, era.requirements, join(scratch, 'through'))
  return compare(direct, through, scored)
}

function print({ requirements, fixture }: Era, { rows, failures }: Comparison): void {
  const line = (name: string, direct: string, through: string) =>
    console.log(name.padEnd(56) + direct.padStart(8) + through.padStart(9))
  line(`${requirements}, ${fixture}`, 'direct', 'through')
  for (const { scenario, scored, total, direct, through } of rows) {
    line(scored ? scenario : `${scenario} (not scored)`, `${direct}/${total}`, `${through}/${total}`)
  }
  for (const failure of failures) console.log(`✗ ${failure}`)
}

/** Fixture behind the gateway of the control MCP server. */
const FIXTURE = 'dual-server.js'

/** Runs the suite in each era, and the Inspector, against the control MCP server. */
async function checkControl(suite: Suite, node: string, scratch: string) {
  const control = await startControl(await startFixture(FIXTURE, scratch), scratch)
  const proxy = await startTokenProxy(control)
  const verdicts: ControlVerdict[] = []
  try {
    for (const requirements of new Set(eras.map((era) => era.requirements))) {
      const verdict = judgeControl(await suite.run(proxy.url, requirements, join(scratch, requirements)))
      printControl(requirements, verdict)
      verdicts.push(verdict)
    }
  } finally {
    proxy.close()
  }
  const failures = [...verdicts.flatMap((verdict) => verdict.failures), ...needless(verdicts)]
  const inspected = await inspect(node, control, scratch)
  console.log(`Inspector: ${inspected.passed} uses of tools as expected`)
  failures.push(...inspected.failures)
  for (const failure of failures) console.log(`✗ ${failure}`)
  const passed = verdicts.reduce((sum, verdict) => sum + verdict.passed, inspected.passed)
  return { passed, failures }
}

function printControl(requirements: string, { rows }: ControlVerdict): void {
  console.log(`${requirements}, control MCP server`)
  for (const { scenario, passed, total, reasons } of rows)
    console.log([scenario.padEnd(56), `${passed}/${total}`.padStart(8), ' ', ...reasons].join(' ').trimEnd())
}

async function main(): Promise<number> {
  const scratch = await mkdtemp(join(tmpdir(), 'breakwater-conformance-'))
  let passed = 0
  let failed = 0
  try {
    const tools = start('bash', [toolsScript], join(scratch, 'tools.log'))
    const node = await tools.line((line) => line, INSTALL_LIMIT_MS)
    const suite = findSuite(node)
    for (const era of eras) {
      const folder = join(scratch, `${era.requirements}-${era.fixture}`)
      await mkdir(folder)
      const comparison = await check(suite, era, folder)
      print(era, comparison)
      passed += comparison.passed
      failed += comparison.failures.length
      await stopAll()
    }
    const folder = join(scratch, 'control-mcp')
    await mkdir(folder)
    const control = await checkControl(suite, node, folder)
    passed += control.passed
    failed += control.failures.length
    if (passed === 0) throw new Error('no check passed both ways')
  } catch (error) {
    failed++
    console.error(error)
  } finally {
    await stopAll()
  }
  if (failed === 0) await rm(scratch, { recursive: true })
  else console.log(`Logs and findings: ${scratch}`)
  console.log(`${passed} passed, ${failed} failed`)
  return failed === 0 ? 0 : 1
}

process.exitCode = await main()
