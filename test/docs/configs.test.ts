import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { parse } from 'yaml'
import { faults } from '../../src/chaos/faults/index.ts'
import { readScenario } from '../../src/commands/break/scenario/library.ts'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'
import { readGameDay } from '../../src/gateway/gameday-file.ts'
import { experimentSpec } from '../../src/gateway/guarded/spec.ts'
import { reasons, stableCode } from '../../src/mesh/errors.ts'
import { type Block, readPages } from './pages.ts'

type Json = Readonly<Record<string, unknown>>

const pages = await readPages()
const blocks = pages.flatMap((page) => page.blocks)
const folder = await mkdtemp(join(tmpdir(), 'breakwater-docs-'))
after(() => rm(folder, { recursive: true }))

/** Variables without a default in configs of the pages. */
const variables = { HOME: folder, SEARCH_KEY: 'x' }

/** The servers in the examples of faults. */
const { mcpServers } = parse(await readFile('config/chaos.yaml', 'utf8')) as { mcpServers: Json }

/** Adds the parts that a fragment lacks: servers, and for faults an environment that allows arming. */
function completed(config: unknown): Json {
  if (Array.isArray(config)) return completed({ chaos: { faults: config as unknown[] } })
  const { gateway = {}, ...blocks } = config as Json & { gateway?: Json }
  const named = 'servers' in blocks || 'mcpServers' in blocks
  return {
    gateway: { ...('chaos' in blocks && { environment: 'staging' }), ...gateway },
    ...(!named && { mcpServers }),
    ...blocks,
  }
}

/** Protocol messages are no config. */
const isError = (block: Block) => block.language === 'json' && 'code' in (JSON.parse(block.text) as object)

/** A block with assertions is a scenario. */
const isScenario = ({ language, text }: Block) =>
  language === 'yaml' && 'assert' in ((parse(text) as object | null) ?? {})

const hasKey = ({ language, text }: Block, key: string) =>
  language === 'yaml' && Object.hasOwn((parse(text) ?? {}) as object, key)

/** Guarded experiments and GameDays have files of their own. */
const isGameDay = (block: Block) => hasKey(block, 'roles')
const isExperiment = (block: Block) => hasKey(block, 'hypothesis') && !isGameDay(block)

const configs = blocks.filter(
  (block) =>
    (block.language === 'yaml' && ![isScenario, isExperiment, isGameDay].some((is) => is(block))) ||
    (block.language === 'json' && !isError(block)),
)

test('every experiment of the pages is valid', () => {
  const experiments = blocks.filter(isExperiment)
  assert.ok(experiments.length > 0)
  for (const { page, line, text } of experiments) {
    const read = experimentSpec.safeParse(parse(text))
    assert.ok(read.success, `${page}:${line}: ${read.error?.message}`)
  }
})

test('every GameDay of the pages is valid', async () => {
  const gameDays = blocks.filter(isGameDay)
  assert.ok(gameDays.length > 0)
  for (const [index, { page, line, text }] of gameDays.entries()) {
    const file = join(folder, `gameday-${index}.yaml`)
    await writeFile(file, text)
    const read = await readGameDay(file)
    assert.ok(read.ok, read.ok ? '' : `${page}:${line}: ${read.problems.join('\n')}`)
  }
})

test('the pages have configs, including every type of fault', () => {
  assert.ok(configs.length > Object.keys(faults).length + 10, String(configs.length))
})

test('every config of the pages is valid, fragments once they are completed', async () => {
  await mkdir(join(folder, 'config'))
  for (const [index, { page, line, text }] of configs.entries()) {
    const file = join(folder, 'config', `${index}.json`)
    await writeFile(file, JSON.stringify(completed(parse(text))))
    const loaded = await loadConfig(file, variables)
    const where = `${page}:${line}`
    assert.ok(loaded.ok, loaded.ok ? '' : `${where}: ${loaded.errors.map(formatIssue).join('\n')}`)
    // Files named on a page are on the reader's machine.
    const warnings = loaded.warnings.filter(({ message }) => !message.startsWith('the file cannot be read'))
    assert.deepEqual(warnings.map(formatIssue), [], where)
  }
})

test('every scenario of the pages is valid', async () => {
  const scenarios = blocks.filter(isScenario)
  assert.ok(scenarios.length > 0)
  for (const [index, { page, line, text }] of scenarios.entries()) {
    const file = join(folder, `scenario-${index}.yaml`)
    await writeFile(file, text)
    const read = await readScenario(file)
    assert.ok(read.ok, read.ok ? '' : `${page}:${line}: ${read.problems.join('\n')}`)
  }
})

test('errors on the pages are errors that the gateway answers', () => {
  const errors = blocks.filter(isError)
  assert.ok(errors.length > 0)
  for (const { page, line, text } of errors) {
    const { code, data } = JSON.parse(text) as { code: number; data: { code: string; reason: string } }
    const known = Object.entries(reasons).find(([name]) => name === data.reason)
    assert.deepEqual([code, data.code], [known?.[1].code, stableCode(data.reason)], `${page}:${line}`)
  }
})

test('the pages state the right number of kinds of faults', () => {
  const said = pages.flatMap(({ text }) =>
    [...text.matchAll(/(\d+) kinds/g)].map(([, count]) => Number(count)),
  )
  assert.deepEqual([...new Set(said)], [Object.keys(faults).length])
})
