/**
 * `npm run mutations`: mutates the source in a single place at a time and reports the mutants killed by tests.
 * Shows the loss from a cut of tests: run before and after with the same seed and compare the survivors.
 *
 *   --under src/policies,src/chaos   sources to mutate (default: src)
 *   --count 100                      number of mutants, a seeded sample of all possible mutants
 *   --seed 1
 *   --tests policies/,wire/cells     tests to run, in this order, after the folder that mirrors the source's folder
 *   --survivors FILE                 only mutants that survived there
 *   --out FILE                       a line of JSON for each mutant (default: standard output)
 *
 * Works in a copy of the project in the folder for temporary files. The operators are those of Stryker for JavaScript,
 * without strings: conditions, comparisons, logic, arithmetic, booleans, numbers, and omitted statements.
 */
import { spawnSync } from 'node:child_process'
import {
  appendFileSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import ts from 'typescript'
import { seeded } from '../support/random.ts'

interface Mutation {
  /** Path from the project's folder. */
  readonly file: string
  readonly line: number
  /** Begin and end of the replaced text, in characters. */
  readonly start: number
  readonly end: number
  readonly from: string
  readonly to: string
}

/** A mutant that makes tests take this many times as long as without a mutant hangs, and counts as killed. */
const HANGS = 4

const SWAPPED: Readonly<Partial<Record<ts.SyntaxKind, string>>> = {
  [ts.SyntaxKind.EqualsEqualsEqualsToken]: '!==',
  [ts.SyntaxKind.ExclamationEqualsEqualsToken]: '===',
  [ts.SyntaxKind.LessThanToken]: '>=',
  [ts.SyntaxKind.LessThanEqualsToken]: '<',
  [ts.SyntaxKind.GreaterThanToken]: '<=',
  [ts.SyntaxKind.GreaterThanEqualsToken]: '>',
  [ts.SyntaxKind.AmpersandAmpersandToken]: '||',
  [ts.SyntaxKind.BarBarToken]: '&&',
  [ts.SyntaxKind.QuestionQuestionToken]: '&&',
  [ts.SyntaxKind.PlusToken]: '-',
  [ts.SyntaxKind.MinusToken]: '+',
  [ts.SyntaxKind.AsteriskToken]: '/',
  [ts.SyntaxKind.SlashToken]: '*',
  [ts.SyntaxKind.PlusEqualsToken]: '-=',
}

/** Returns all mutants of a file, in the order of its text. */
function mutationsOf(file: string, text: string): Mutation[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2023, true)
  const found: Mutation[] = []
  const add = (node: ts.Node, to: string) => {
    const start = node.getStart(source)
    const { line } = source.getLineAndCharacterOfPosition(start)
    found.push({ file, line: line + 1, start, end: node.end, from: text.slice(start, node.end), to })
  }
  const visit = (node: ts.Node): void => {
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isInterfaceDeclaration(node)) return
    if (ts.isBinaryExpression(node)) {
      const to = SWAPPED[node.operatorToken.kind]
      const isText = [node.left, node.right].some(
        (side) => ts.isStringLiteralLike(side) || ts.isTemplateExpression(side),
      )
      if (to !== undefined && !(isText && node.operatorToken.kind === ts.SyntaxKind.PlusToken))
        add(node.operatorToken, to)
    }
    if (ts.isIfStatement(node)) {
      add(node.expression, 'true')
      add(node.expression, 'false')
    }
    if (ts.isConditionalExpression(node)) add(node.condition, `!(${node.condition.getText(source)})`)
    if (node.kind === ts.SyntaxKind.TrueKeyword) add(node, 'false')
    if (node.kind === ts.SyntaxKind.FalseKeyword) add(node, 'true')
    if (ts.isNumericLiteral(node)) add(node, `(${node.text} + 1)`)
    if (ts.isExpressionStatement(node) && !ts.isAwaitExpression(node.expression)) add(node, ';')
    ts.forEachChild(node, visit)
  }
  visit(source)
  return found
}

const { values } = parseArgs({
  options: {
    under: { type: 'string', default: 'src' },
    count: { type: 'string', default: '100' },
    seed: { type: 'string', default: '1' },
    tests: { type: 'string', default: 'exchanges/,wire/,e2e/' },
    survivors: { type: 'string' },
    out: { type: 'string', default: '/dev/stdout' },
  },
})
const root = fileURLToPath(new URL('../../..', import.meta.url))
const copy = mkdtempSync(join(tmpdir(), 'breakwater-mutations-'))
process.once('exit', () => rmSync(copy, { recursive: true, force: true }))
for (const name of readdirSync(root))
  if (!['.git', 'node_modules', 'dist', 'state'].includes(name))
    cpSync(join(root, name), join(copy, name), { recursive: true })
symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))

const under = values.under.split(',')
const sources = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
  .map((path) => `src/${path}`)
  .filter((path) => path.endsWith('.ts') && under.some((prefix) => path.startsWith(prefix)))
  .sort()
const possible = sources.flatMap((file) => mutationsOf(file, readFileSync(join(root, file), 'utf8')))
const random = seeded(Number(values.seed))
const sample = possible
  .map((mutation) => ({ mutation, at: random() }))
  .sort((a, b) => a.at - b.at)
  .slice(0, Number(values.count))
  .map(({ mutation }) => mutation)
const wanted =
  values.survivors === undefined
    ? undefined
    : readFileSync(values.survivors, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Mutation & { noticedBy: string | null })
        .filter(({ noticedBy }) => noticedBy === null)
const chosen = sample.filter(
  ({ file, start, to }) =>
    wanted === undefined ||
    wanted.some((other) => other.file === file && other.start === start && other.to === to),
)

/** Compiles one source, and the bundle for processes. Returns false if the mutant does not compile. */
function compile(file: string, text: string): boolean {
  writeFileSync(join(copy, file), text)
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => readFileSync(path, 'utf8'))
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root)
  // A single module has no package.json with the module kind.
  const compilerOptions = { ...options, noEmit: false, module: ts.ModuleKind.ESNext }
  const { outputText } = ts.transpileModule(text, { fileName: file, compilerOptions })
  writeFileSync(join(copy, 'build', file.replace(/\.ts$/, '.js')), outputText)
  return spawnSync(process.execPath, ['bundle.js', 'build/dist'], { cwd: copy }).status === 0
}

/** Returns the name of the first test file that fails within the time; null if all pass. */
function play(tests: string, limitMs?: number): string | null {
  const { status, stdout } = spawnSync(process.execPath, ['build/test/run.js', '--bail', tests], {
    cwd: copy,
    encoding: 'utf8',
    timeout: limitMs,
    maxBuffer: 2 ** 28,
  })
  if (status === 0) return null
  return /^FAILED (\S+):/m.exec(stdout)?.[1] ?? `${tests} hangs`
}

/** Returns the tests’ folder that mirrors the folder of a source, or the nearest existing parent. */
function mirrorOf(file: string): string | undefined {
  for (let folder = dirname(file); folder !== 'src'; folder = dirname(folder)) {
    const tests = folder.replace(/^src\//, '')
    const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    if (files.some((file) => file.startsWith(`${tests}/`) && file.endsWith('.test.ts'))) return `${tests}/`
  }
  return undefined
}

const limits = new Map<string, number>()

/** How long tests take without any change, with room for a busy machine, in milliseconds. They have to pass. */
function learn(tests: string): void {
  if (limits.has(tests)) return
  const began = performance.now()
  const failed = play(tests)
  if (failed !== null) throw new Error(`${failed} fails without any change`)
  limits.set(tests, Math.ceil(30_000 + HANGS * (performance.now() - began)))
}

let noticed = 0
for (const mutation of chosen) {
  const text = readFileSync(join(root, mutation.file), 'utf8')
  const changed = text.slice(0, mutation.start) + mutation.to + text.slice(mutation.end)
  const order = [...new Set([mirrorOf(mutation.file) ?? [], values.tests.split(',')].flat())]
  for (const tests of order) learn(tests)
  let noticedBy = compile(mutation.file, changed) ? null : 'the compiler'
  for (const tests of order) noticedBy ??= play(tests, limits.get(tests))
  if (noticedBy !== null) noticed++
  appendFileSync(values.out, `${JSON.stringify({ ...mutation, noticedBy })}\n`)
  compile(mutation.file, text)
}
console.log(`${noticed} of ${chosen.length} changes were noticed (${possible.length} are possible)`)
