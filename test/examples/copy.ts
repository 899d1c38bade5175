import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

/** The folder with the compiled project. */
const built = fileURLToPath(new URL('../..', import.meta.url))

/** An example as it would stand in `src`. */
export interface Example {
  /** The module beside this file, such as `closed-on`. */
  readonly module: string
  /** Folder of the module, relative to `src`, such as `policies`. */
  readonly folder: string
  /** The module's export. */
  readonly name: string
  /** The registry in the folder, an existing line of the registry, and the new line before the existing line. */
  readonly registry: string
  readonly before: string
  readonly line: string
}

/** Copies the whole program and adds a module and a line of a registry. Returns the folder of its `main.js`. */
export async function copyWith(t: TestContext, example: Example): Promise<string> {
  const { module, folder, name, registry, before, line } = example
  // Within the build folder, so that Node finds the packages.
  const copy = await mkdtemp(join(built, 'example-'))
  t.after(() => rm(copy, { recursive: true, force: true }))
  const src = join(copy, 'src')
  for (const part of ['src', 'docs']) await cp(join(built, part), join(copy, part), { recursive: true })
  const up = folder
    .split('/')
    .map(() => '..')
    .join('/')
  const text = await readFile(join(built, 'test/examples', `${module}.js`), 'utf8')
  await writeFile(join(src, folder, `${module}.js`), text.replaceAll("'../../src/", `'${up}/`))
  const file = join(src, folder, registry)
  const lines = (await readFile(file, 'utf8')).split('\n')
  const at = lines.findIndex((one) => one.trim() === before)
  if (at === -1) throw new Error(`${registry} has no line "${before}"`)
  lines.splice(at, 0, line)
  await writeFile(file, [`import { ${name} } from './${module}.js'`, ...lines].join('\n'))
  return src
}
