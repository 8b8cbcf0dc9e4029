explain execute dueline_described('{}', '{}', '{}')
