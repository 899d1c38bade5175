import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { readAudit } from '../../deploy/supply-chain/advisories.ts'
import { isAllowed, licencesPage, refusals } from '../../deploy/supply-chain/licences.ts'
import { root, runtimePackages } from '../../deploy/supply-chain/packages.ts'
import { sbom } from '../../deploy/supply-chain/sbom.ts'

const manifest = async () =>
  JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as Readonly<Record<string, unknown>> & {
    readonly dependencies: Readonly<Record<string, string>>
    readonly devDependencies: Readonly<Record<string, string>>
  }

test('the page of licences is what the lockfile says, and each of them is allowed', async () => {
  const packages = await runtimePackages()
  assert.deepEqual(refusals(packages), [])
  assert.equal(
    await readFile(join(root, 'docs', 'licences.md'), 'utf8'),
    licencesPage(packages),
    'run npm run licences',
  )
})

test('all that is needed at run time is among the packages, and nothing else', async () => {
  const names = new Set((await runtimePackages()).map(({ name }) => name))
  const { dependencies, devDependencies } = await manifest()
  for (const name of Object.keys(dependencies)) assert.ok(names.has(name), name)
  for (const name of ['typescript', 'eslint', 'prettier']) {
    assert.ok(name in devDependencies)
    assert.equal(names.has(name), false, name)
  }
})

test('a licence is allowed if one of its alternatives is allowed as a whole', () => {
  for (const licence of ['MIT', '(MIT OR GPL-3.0-only)', 'MIT AND ISC', 'GPL-3.0-only OR (MIT AND ISC)'])
    assert.ok(isAllowed(licence), licence)
  for (const licence of ['GPL-3.0-only', 'MIT AND GPL-3.0-only', 'SEE LICENSE IN x', '', undefined])
    assert.equal(isAllowed(licence), false, licence)
  assert.deepEqual(refusals([{ name: 'a', version: '1.0.0', licence: undefined }]), [
    'a@1.0.0: no declared licence is not allowed',
  ])
})

test('the bill of materials matches the lockfile, without download places', async () => {
  const bom = await sbom()
  const { name, version } = await manifest()
  assert.equal(bom.bomFormat, 'CycloneDX')
  assert.deepEqual([bom.metadata.component.name, bom.metadata.component.version], [name, version])
  const named = new Set(bom.components.map((component) => component.purl))
  const purl = (name: string, version: string) => `pkg:npm/${name.replace('@', '%40')}@${version}`
  const missing = (await runtimePackages()).filter(({ name, version }) => !named.has(purl(name, version)))
  assert.deepEqual(missing, [])
  assert.equal(bom.components.length, (await runtimePackages()).length)
  const refs = new Set([...bom.components, bom.metadata.component].map((component) => component['bom-ref']))
  for (const { ref, dependsOn } of bom.dependencies)
    for (const one of [ref, ...dependsOn]) assert.ok(refs.has(one), one)
  assert.doesNotMatch(JSON.stringify(bom), /"distribution"|registry\./)
})

test('advisories fail the check, and a registry without advisories is reported', () => {
  assert.deepEqual(readAudit('{"vulnerabilities":{}}').code, 0)
  assert.deepEqual(readAudit('{"vulnerabilities":{"a":{"severity":"high","range":"<2"}}}'), {
    code: 1,
    lines: ['high: a <2'],
  })
  for (const text of ['', 'not found', '{"message":"405 Method Not Allowed"}']) {
    const { code, lines } = readAudit(text)
    assert.equal(code, 0)
    assert.match(lines.join(), /^not checked: /)
  }
  assert.match(readAudit('{"message":"405 Method Not Allowed"}').lines.join(), /405 Method Not Allowed/)
})

test('the package can be published, with its provenance, to any registry', async () => {
  const { private: isPrivate, publishConfig, license } = await manifest()
  assert.equal(isPrivate, undefined)
  assert.deepEqual(publishConfig, { access: 'public', provenance: true })
  assert.equal(license, 'Apache-2.0')
  for (const file of ['package.json', 'package-lock.json'])
    assert.doesNotMatch(await readFile(join(root, file), 'utf8'), /"resolved"|registry\.|"_auth/, file)
})
