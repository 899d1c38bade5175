import tseslint from 'typescript-eslint'

/** Which folder may import from which: the arrows of the architecture, inwards only. */
const layers = {
  units: [],
  mesh: [],
  protocol: ['units'],
  claims: ['mesh', 'protocol', 'units'],
  wire: ['mesh', 'protocol'],
  policies: ['mesh', 'protocol', 'units'],
  approval: ['chaos', 'claims', 'experiments', 'mesh', 'protocol', 'units'],
  config: ['approval', 'policies', 'chaos', 'experiments', 'telemetry', 'mesh', 'protocol', 'units'],
  chaos: ['wire', 'mesh', 'protocol', 'units'],
  console: [],
  experiments: ['claims', 'console', 'mesh', 'protocol', 'units'],
  evidence: ['approval', 'chaos', 'claims', 'experiments', 'mesh', 'protocol', 'units'],
  gamedays: [
    'approval',
    'chaos',
    'claims',
    'console',
    'evidence',
    'experiments',
    'mesh',
    'protocol',
    'units',
  ],
  telemetry: ['policies', 'mesh', 'protocol', 'units'],
  upstreams: ['wire', 'config', 'telemetry', 'mesh', 'protocol', 'units'],
  registry: ['upstreams', 'config', 'telemetry', 'mesh', 'protocol', 'units'],
  sim: [
    'console',
    'upstreams',
    'config',
    'policies',
    'chaos',
    'experiments',
    'claims',
    'telemetry',
    'mesh',
    'protocol',
    'units',
  ],
  access: ['registry', 'policies', 'mesh', 'protocol', 'units'],
  downstream: [
    'access',
    'registry',
    'upstreams',
    'wire',
    'telemetry',
    'policies',
    'mesh',
    'protocol',
    'units',
  ],
  judge: ['telemetry', 'experiments', 'mesh', 'units'],
  load: ['judge', 'config', 'policies', 'mesh', 'protocol', 'units'],
  control: [
    'approval',
    'chaos',
    'config',
    'experiments',
    'gamedays',
    'registry',
    'telemetry',
    'policies',
    'mesh',
    'protocol',
    'units',
  ],
  routes: [
    'approval',
    'control',
    'downstream',
    'registry',
    'telemetry',
    'config',
    'policies',
    'chaos',
    'evidence',
    'experiments',
    'gamedays',
    'mesh',
    'protocol',
    'units',
  ],
}

/** The composition root sees all of these. */
layers.gateway = Object.keys(layers)

/** Nobody imports the commands. */
const outermost = 'commands'

const clockMessage =
  'Time comes from Clock and chance from KeyedRandom, so that tests and simulations own both.'

const noClock = [
  { object: 'Date', property: 'now', message: clockMessage },
  { object: 'Math', property: 'random', message: clockMessage },
  { object: 'performance', property: 'now', message: clockMessage },
  { object: 'AbortSignal', property: 'timeout', message: clockMessage },
]

const noTimers = ['setTimeout', 'setInterval', 'setImmediate'].map((name) => ({
  name,
  message: clockMessage,
}))

/** A folder sees itself and the folders named for it. */
function boundary(folder) {
  const inner = Object.keys(layers).filter((name) => name !== folder && !layers[folder].includes(name))
  const others = [...inner, outermost]
  return {
    files: [`src/${folder}/**/*.ts`],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              group: others.flatMap((name) => [1, 2, 3].map((up) => `${'../'.repeat(up)}${name}/*`)),
              message: `src/${folder} may import from: ${layers[folder].join(', ') || 'itself only'}.`,
            },
            ...(folder === 'mesh'
              ? [{ regex: '^[^.]', message: 'The kernel imports no vendor and no I/O.' }]
              : []),
          ],
        },
      ],
    },
  }
}

export default tseslint.config(
  { ignores: ['dist', 'build', 'node_modules', '**/*.js'] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    languageOptions: {
      parserOptions: { project: './tsconfig.test.json', tsconfigRootDir: import.meta.dirname },
    },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true },
      ],
      // Errors of a call are values, and parts are objects of functions: neither rule knows that style.
      '@typescript-eslint/unbound-method': 'off',
      '@typescript-eslint/only-throw-error': 'off',
      '@typescript-eslint/prefer-promise-reject-errors': 'off',
      'no-restricted-exports': ['error', { restrictDefaultExports: { direct: true } }],
      eqeqeq: 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    ignores: ['src/mesh/clock.ts', 'src/mesh/keyed-random.ts'],
    rules: {
      'no-restricted-properties': ['error', ...noClock],
      'no-restricted-globals': ['error', ...noTimers],
    },
  },
  {
    files: ['src/**/*.ts'],
    ignores: ['src/main.ts', 'src/commands/**'],
    rules: {
      'no-restricted-syntax': [
        'error',
        {
          selector: "CallExpression[callee.object.name='process'][callee.property.name='exit']",
          message: 'Only the commands end the process.',
        },
      ],
    },
  },
  {
    files: ['test/**/*.ts'],
    rules: {
      '@typescript-eslint/no-floating-promises': [
        'error',
        {
          allowForKnownSafeCalls: [
            { from: 'package', name: ['test', 'describe', 'it', 'suite'], package: 'node:test' },
          ],
        },
      ],
      // Tests read replies of any shape, and stand in for parts that are asynchronous.
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-base-to-string': 'off',
      '@typescript-eslint/no-misused-promises': 'off',
      '@typescript-eslint/no-empty-object-type': 'off',
      '@typescript-eslint/no-unused-expressions': 'off',
      '@typescript-eslint/require-await': 'off',
    },
  },
  ...Object.keys(layers).map(boundary),
)
