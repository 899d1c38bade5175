import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { root, runtimePackages } from './packages.ts'

interface Component {
  readonly 'bom-ref': string
  readonly name: string
  readonly version: string
  readonly purl: string
  readonly externalReferences: readonly { readonly type: string; readonly url: string }[]
}

/** As much of a bill of materials in CycloneDX as is looked at. */
export interface Sbom {
  readonly bomFormat: string
  readonly metadata: { readonly component: Component }
  readonly components: readonly Component[]
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[]
}

/**
 * What is installed with Breakwater, as npm tells it from the lockfile. With `--omit dev` npm leaves out as well what packages for
 * development need too (100 of 234 packages, the SDK of the protocol among them), so that this takes all, and leaves out itself what the
 * lockfile marks.
 */
export async function sbom(): Promise<Sbom> {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only']
  const { stdout } = await promisify(execFile)('npm', args, { cwd: root, maxBuffer: 64 * 1024 ** 2 })
  const all = JSON.parse(stdout) as Sbom
  const { name } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { name: string }
  const packages = new Set((await runtimePackages()).map(({ name, version }) => `${name}@${version}`))
  const components = all.components
    .filter(({ name, version }) => packages.has(`${name}@${version}`))
    // Where it happened to be downloaded from says nothing about what it is.
    .map((component) => ({
      ...component,
      externalReferences: component.externalReferences.filter(({ type }) => type !== 'distribution'),
    }))
  // npm names it after the folder that it lies in.
  const own = { ...all.metadata.component, name }
  const refs = new Set([own, ...components].map((component) => component['bom-ref']))
  const dependencies = all.dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((other) => refs.has(other)) }))
  return { ...all, metadata: { ...all.metadata, component: own }, components, dependencies }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const bom = await sbom()
  await writeFile(join(root, 'sbom.cdx.json'), `${JSON.stringify(bom, undefined, 2)}\n`)
  console.log(`sbom.cdx.json: ${bom.components.length} components`)
}
